"""Which drafter a command line asks for."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
    HEADS = "heads"
    SUFFIX = "suffix"
    COPY = "copy"
    NGRAM_ONLINE = "ngram-online"
    RECYCLING = "recycling"
    SELF = "self"
    TLI = "tli"
    SLEM = "slem"


# What --draft-model goes with; the last two take one with another tokenizer.
_DRAFT_MODELS = (DrafterName.DRAFT_MODEL, DrafterName.TLI, DrafterName.SLEM)
_SOURCES = {
    DrafterName.DRAFT_MODEL: "MODEL",
    DrafterName.NGRAM: "PATH",
    DrafterName.HEADS: "HEADS",
    DrafterName.TLI: "MODEL",
    DrafterName.SLEM: "MODEL",
}
_OPTIONS = {
    **{drafter: f"--{drafter} {source}" for drafter, source in _SOURCES.items()},
    **dict.fromkeys(_DRAFT_MODELS, "--draft-model MODEL"),
    DrafterName.SUFFIX: "--corpus PATH",
    DrafterName.SELF: "--exit-layer or --skip-layers",
}


@dataclass(frozen=True)
class DrafterOptions:
    """What only some drafters take, and can do without."""

    corpus: Path | None = None
    exit_layer: int | None = None
    skip_layers: str | None = None


def chosen_drafter(
    name: DrafterName | None,
    draft_model: str | None,
    ngram: Path | None,
    heads: str | None = None,
    options: DrafterOptions = DrafterOptions(),
) -> DrafterName:
    """The drafter asked for or implied, else lookup; raises OptionError where options contradict."""
    layers = options.skip_layers if options.exit_layer is None else options.exit_layer
    given = {
        name if name in _DRAFT_MODELS else DrafterName.DRAFT_MODEL: draft_model,
        DrafterName.NGRAM: ngram,
        DrafterName.HEADS: heads,
        DrafterName.SUFFIX: options.corpus,
        DrafterName.SELF: layers,
    }
    implied = [drafter for drafter, value in given.items() if value is not None]
    chosen = name or next(iter(implied), DrafterName.LOOKUP)
    for drafter in implied:
        if drafter != chosen:
            raise OptionError(
                f"{_OPTIONS[drafter]} does not go with the drafter {chosen}; give one way to guess."
            )
    if chosen in _SOURCES and chosen not in implied:
        raise OptionError(f"the drafter {chosen} needs {_OPTIONS[chosen]}.")
    return chosen


@dataclass(frozen=True, slots=True)
class Wanted:
    """One item of --drafters: as it was written, and what it asks for."""

    label: str
    name: DrafterName
    source: str | None = None  # the model or file that it drafts with


def asked_for(drafters: str) -> list[Wanted]:
    """What --drafters asks for, with commas between; raises OptionError for what is no drafter."""
    return [_wanted(item.strip()) for item in drafters.split(",")]


def _wanted(label: str) -> Wanted:
    name, _, source = label.partition("=")
    if name not in list(DrafterName):
        raise OptionError(f'"{name}" is not a drafter; give some of {", ".join(map(_form, DrafterName))}.')
    drafter = DrafterName(name)
    if (drafter in _SOURCES) != bool(source):
        raise OptionError(f'"{label}" does not ask for a drafter; write {_form(drafter)}.')
    return Wanted(label, drafter, source or None)


def _form(drafter: DrafterName) -> str:
    """How to ask for a drafter."""
    return f"{drafter}={_SOURCES[drafter]}" if drafter in _SOURCES else str(drafter)


def make_drafters(
    wanted: Iterable[Wanted], target: "LanguageModel", load_model: "Callable[[str], LanguageModel]"
) -> "dict[str, Drafter]":
    """The drafters by their labels, plain decoding left out; raises what loading raises."""
    return {
        each.label: make_drafter(
            each.name,
            target,
            each.source,
            Path(each.source) if each.source else None,
            load_model,
            each.source,
        )
        for each in wanted
        if each.name is not DrafterName.NONE
    }


def make_drafter(
    name: DrafterName,
    target: "LanguageModel",
    draft_model: str | None,
    ngram: Path | None,
    load_model: "Callable[[str], LanguageModel]",
    heads: str | None = None,
    options: DrafterOptions = DrafterOptions(),
) -> "Drafter":
    """The drafter of that name for a target; raises what loading its model or file raises."""
    from draftwise.drafters.draft_model import DraftModel
    from draftwise.drafters.input_copy import InputCopy
    from draftwise.drafters.none import NoDrafter
    from draftwise.drafters.online_ngram import OnlineNgramModel
    from draftwise.drafters.prompt_lookup import PromptLookup
    from draftwise.drafters.recycling import TokenRecycling
    from draftwise.drafters.translation.model import TranslatedModel
    from draftwise.drafters.translation.text import TextDraftModel

    match name:
        case DrafterName.DRAFT_MODEL:
            return DraftModel(load_model(str(draft_model)))
        case DrafterName.TLI:
            return DraftModel(TranslatedModel(load_model(str(draft_model)), target))
        case DrafterName.SLEM:
            return TextDraftModel(load_model(str(draft_model)))
        case DrafterName.NGRAM:
            return _ngram_drafter(Path(str(ngram)), target.tokenizer)
        case DrafterName.HEADS:
            from draftwise.drafters.heads import load_heads

            return load_heads(str(heads), target)
        case DrafterName.LOOKUP:
            return PromptLookup()
        case DrafterName.NONE:
            return NoDrafter()
        case DrafterName.SUFFIX:
            return _suffix_drafter(options.corpus, target.tokenizer)
        case DrafterName.COPY:
            return InputCopy()
        case DrafterName.NGRAM_ONLINE:
            return OnlineNgramModel(target.vocab_size).drafter()
        case DrafterName.RECYCLING:
            return TokenRecycling()
        case DrafterName.SELF:
            return _self_drafter(target, options)


def keep_corpus(drafter: "Drafter", options: DrafterOptions, tokenizer: "Tokenizer | None") -> None:
    """Write what the suffix drafter has learnt where --corpus says."""
    from draftwise.drafters.suffix import Suffix

    if options.corpus is not None and isinstance(drafter, Suffix):
        drafter.corpus.save(options.corpus, tokenizer)


def _suffix_drafter(file: Path | None, tokenizer: "Tokenizer | None") -> "Drafter":
    """With the corpus in a file, which need not be there yet; None: with the text alone."""
    from draftwise.drafters.corpus import Corpus
    from draftwise.drafters.suffix import Suffix

    if file is None:
        return Suffix()
    return Suffix(Corpus.load(file, tokenizer) if file.exists() else Corpus())


def _self_drafter(target: "LanguageModel", options: DrafterOptions) -> "Drafter":
    """With the layers asked for, else without every second one of the middle half."""
    from draftwise.drafters.self_speculation import SelfSpeculation
    from draftwise.models.torch.engine import TorchModel

    if not isinstance(target, TorchModel):
        raise OptionError("the drafter self takes layers of the target, which needs --engine torch.")
    skipped = _layer_numbers(options.skip_layers) if options.skip_layers is not None else []
    if options.exit_layer is None and options.skip_layers is None:
        skipped = list(range(target.num_layers // 4, 3 * target.num_layers // 4, 2)) or [0]
    return SelfSpeculation(target, exit_layer=options.exit_layer, skip_layers=skipped)


def _layer_numbers(text: str) -> list[int]:
    """The numbers in "3,5,8-11"; raises OptionError where it is not so written."""
    numbers: list[int] = []
    for part in text.split(","):
        bounds = part.strip().split("-")
        if len(bounds) > 2 or not all(bound.isdecimal() for bound in bounds):
            raise OptionError(
                f"skip_layers is {text!r}; give numbers and ranges with commas, as in 3,5,8-11."
            )
        numbers += range(int(bounds[0]), int(bounds[-1]) + 1)
    return numbers


def _ngram_drafter(file: Path, tokenizer: "Tokenizer | None") -> "Drafter":
    """A saved n-gram model, which is a zip archive, or one counted from a text file."""
    from zipfile import is_zipfile

    from draftwise.drafters.ngram import NgramModel

    if tokenizer is None or is_zipfile(file) or file.suffix == ".npz":
        return NgramModel.load(file, tokenizer).drafter()
    return NgramModel.from_text_files([file], tokenizer, NGRAM_ORDER).drafter()
