"""Which drafter a command line asks for."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from draftwise.errors import OptionError

if TYPE_CHECKING:
    from draftwise.drafters.base import Drafter
    from draftwise.models.base import LanguageModel
    from draftwise.tokenizer import Tokenizer

NGRAM_ORDER = 3


class DrafterName(StrEnum):
    """How to guess."""

    LOOKUP = "lookup"
    NONE = "none"
    DRAFT_MODEL = "draft-model"
    NGRAM = "ngram"


_OPTIONS = {DrafterName.DRAFT_MODEL: "--draft-model MODEL", DrafterName.NGRAM: "--ngram PATH"}


def chosen_drafter(name: DrafterName | None, draft_model: str | None, ngram: Path | None) -> DrafterName:
    """The drafter asked for or implied, else lookup; raises OptionError where options contradict."""
    given = {DrafterName.DRAFT_MODEL: draft_model, DrafterName.NGRAM: ngram}
    implied = [drafter for drafter, value in given.items() if value is not None]
    chosen = name or next(iter(implied), DrafterName.LOOKUP)
    for drafter in implied:
        if drafter != chosen:
            raise OptionError(
                f"{_OPTIONS[drafter]} does not go with the drafter {chosen}; give one way to guess."
            )
    if chosen in given and chosen not in implied:
        raise OptionError(f"the drafter {chosen} needs {_OPTIONS[chosen]}.")
    return chosen


def make_drafter(
    name: DrafterName,
    target: "LanguageModel",
    draft_model: str | None,
    ngram: Path | None,
    load_model: "Callable[[str], LanguageModel]",
) -> "Drafter":
    """The drafter of that name for a target; raises what loading its model or file raises."""
    from draftwise.drafters.draft_model import DraftModel
    from draftwise.drafters.none import NoDrafter
    from draftwise.drafters.prompt_lookup import PromptLookup

    match name:
        case DrafterName.DRAFT_MODEL:
            return DraftModel(load_model(str(draft_model)))
        case DrafterName.NGRAM:
            return _ngram_drafter(Path(str(ngram)), target.tokenizer)
        case DrafterName.LOOKUP:
            return PromptLookup()
        case DrafterName.NONE:
            return NoDrafter()


def _ngram_drafter(file: Path, tokenizer: "Tokenizer | None") -> "Drafter":
    """A saved n-gram model, which is a zip archive, or one counted from a text file."""
    from zipfile import is_zipfile

    from draftwise.drafters.ngram import NgramModel

    if tokenizer is None or is_zipfile(file):
        return NgramModel.load(file, tokenizer).drafter()
    return NgramModel.from_text_files([file], tokenizer, NGRAM_ORDER).drafter()
