"""Which drafter a command line asks for."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftwise.cli.options import EngineName
from draftwise.errors import OptionError

if TYPE_CHECKING:
    from draftwise.drafters.base import Drafter
    from draftwise.drafters.growth import Shape
    from draftwise.models.base import LanguageModel
    from draftwise.models.conversion import HiddenStates
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


# What a drafter drafts with, where it needs something.
_SOURCES = {
    DrafterName.DRAFT_MODEL: "MODEL",
    DrafterName.NGRAM: "PATH",
    DrafterName.HEADS: "HEADS",
    DrafterName.TLI: "MODEL",
    DrafterName.SLEM: "MODEL",
}
_DRAFT_MODELS = [name for name, source in _SOURCES.items() if source == "MODEL"]
_TREES = (DrafterName.DRAFT_MODEL, DrafterName.HEADS)  # what can grow one on request
# What says in options of their own what a drafter is to draft with.
_OPTIONS = {
    **{drafter: f"--{drafter} {source}" for drafter, source in _SOURCES.items()},
    **dict.fromkeys(_DRAFT_MODELS, "--draft-model MODEL"),
    DrafterName.SUFFIX: "--corpus PATH",
    DrafterName.SELF: "--exit-layer or --skip-layers",
}
_TREE = re.compile(r"[1-9]\d*(x[1-9]\d*)*")


@dataclass(frozen=True)
class DrafterOptions:
    """What only some drafters take, and can do without."""

    corpus: Path | None = None
    exit_layer: int | None = None
    skip_layers: str | None = None
    tree: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What a command line asks for, and how it was written; `source`: the model or file to draft with."""

    label: str
    name: DrafterName
    source: str | None = None
    options: DrafterOptions = DrafterOptions()

    def __post_init__(self) -> None:
        tree = self.options.tree
        if tree is None:
            return
        if self.name not in _TREES:
            raise OptionError(
                f"the drafter {self.name} takes no tree; give one to {' or '.join(map(str, _TREES))}."
            )
        if not _TREE.fullmatch(tree):
            raise OptionError(
                f'the tree is "{tree}"; give a number of guesses, as in 24, or how many there are after each '
                "guess, as in 4x2x1."
            )


def chosen_drafter(
    name: DrafterName | None,
    draft_model: str | None,
    ngram: Path | None,
    heads: str | None = None,
    options: DrafterOptions = DrafterOptions(),
) -> Wanted:
    """The drafter asked for or implied, else lookup; raises OptionError where options contradict."""
    layers = options.skip_layers if options.exit_layer is None else options.exit_layer
    given = {
        name if name in _DRAFT_MODELS else DrafterName.DRAFT_MODEL: draft_model,
        DrafterName.NGRAM: ngram,
        DrafterName.HEADS: heads,
        DrafterName.SUFFIX: options.corpus,
        DrafterName.SELF: layers,
    }
    implied = {drafter: str(value) for drafter, value in given.items() if drafter and value is not None}
    chosen = name or next(iter(implied), DrafterName.LOOKUP)
    for drafter in implied:
        if drafter != chosen:
            raise OptionError(
                f"{_OPTIONS[drafter]} does not go with the drafter {chosen}; give one way to guess."
            )
    if chosen in _SOURCES and chosen not in implied:
        raise OptionError(f"the drafter {chosen} needs {_OPTIONS[chosen]}.")
    return Wanted(str(chosen), chosen, implied.get(chosen), options)


def asked_for(drafters: str) -> list[Wanted]:
    """What --drafters asks for, with commas between; raises OptionError for what is no drafter."""
    return [_wanted(item.strip()) for item in drafters.split(",")]


def _wanted(label: str) -> Wanted:
    name, _, source = label.partition("=")
    if name not in list(DrafterName):
        raise OptionError(f'"{name}" is not a drafter; give some of {", ".join(map(_form, DrafterName))}.')
    drafter = DrafterName(name)
    path, at, tree = source.rpartition("@")
    source, options = (path, DrafterOptions(tree=tree)) if at and _TREE.fullmatch(tree) else (source, None)
    if (drafter in _SOURCES) != bool(source):
        raise OptionError(f'"{label}" does not ask for a drafter; write {_form(drafter)}.')
    return Wanted(label, drafter, source or None, options or DrafterOptions())


def _form(drafter: DrafterName) -> str:
    """How to ask for a drafter."""
    return f"{drafter}={_SOURCES[drafter]}" if drafter in _SOURCES else str(drafter)


TREE_HELP = "how many guesses, the likeliest, as in 24, or how many after each guess, as in 4x2x1"
DRAFTERS_HELP = (
    f"Ways to guess, with commas between: {', '.join(map(_form, DrafterName))}; to guess trees, "
    f"{' or '.join(f'{_form(drafter)}@TREE' for drafter in _TREES)}, where TREE is {TREE_HELP}."
)
DraftersOption = Annotated[str, typer.Option(help=DRAFTERS_HELP, metavar="A,B,...")]


def engine_for(engine: EngineName, wanted: Iterable[Wanted]) -> EngineName:
    """The engine of the target; where none was asked for, one on which all these can draft."""
    needs_torch = any(each.name is DrafterName.SELF or each.options.tree for each in wanted)
    return EngineName.TORCH if needs_torch and engine is EngineName.AUTO else engine


def states_read(wanted: Iterable[Wanted]) -> "HiddenStates":
    """The hidden states of the target that these read; raises ModelError for heads that cannot be read."""
    from draftwise.drafters.heads import layers_read

    heads = [layers_read(str(each.source)) for each in wanted if each.name is DrafterName.HEADS]
    return (lambda num_layers: [n for layers in heads for n in layers(num_layers)]) if heads else ()


def make_drafters(
    wanted: Iterable[Wanted], target: "LanguageModel", load_model: "Callable[[str], LanguageModel]"
) -> "dict[str, Drafter]":
    """The drafters by their labels, plain decoding left out; raises what loading raises."""
    return {
        each.label: make_drafter(each, target, load_model)
        for each in wanted
        if each.name is not DrafterName.NONE
    }


def make_drafter(
    wanted: Wanted, target: "LanguageModel", load_model: "Callable[[str], LanguageModel]"
) -> "Drafter":
    """A drafter for a target; raises what loading its model or file raises."""
    from draftwise.drafters.draft_model import DraftModel, refuse_other_tokens
    from draftwise.drafters.heads import load_heads
    from draftwise.drafters.input_copy import InputCopy
    from draftwise.drafters.none import NoDrafter
    from draftwise.drafters.online_ngram import OnlineNgramModel
    from draftwise.drafters.prompt_lookup import PromptLookup
    from draftwise.drafters.recycling import TokenRecycling
    from draftwise.drafters.translation.model import TranslatedModel
    from draftwise.drafters.translation.text import TextDraftModel
    from draftwise.drafters.tree import TreeDraftModel
    from draftwise.models.load import load_tokenizer

    source, options = str(wanted.source), wanted.options
    shape = _shape(options.tree)
    match wanted.name:
        case DrafterName.DRAFT_MODEL:
            # Which takes seconds, where loading may convert a model first.
            refuse_other_tokens(source, load_tokenizer(source), target)
            model = load_model(source)
            return TreeDraftModel(model, shape) if shape else DraftModel(model)
        case DrafterName.TLI:
            return DraftModel(TranslatedModel(load_model(source), target))
        case DrafterName.SLEM:
            return TextDraftModel(load_model(source))
        case DrafterName.NGRAM:
            return _ngram_drafter(Path(source), target.tokenizer)
        case DrafterName.HEADS:
            return load_heads(source, target, tree=shape)
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


def _shape(tree: str | None) -> "Shape | None":
    """A budget, which goes to the likeliest guesses, or how many guesses follow each."""
    from draftwise.drafters.growth import DynamicTree, StaticTree

    if tree is None:
        return None
    widths = [int(width) for width in tree.split("x")]
    return StaticTree.branching(*widths) if len(widths) > 1 else DynamicTree(*widths)


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
