"""Lossless speculative decoding: faster generation, the same words.

Public names are imported when first used, so that `import draftwise` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftwise.auditing.audit import Audit, Finding, audit
    from draftwise.batch import Batch
    from draftwise.batches import generate_batch, generate_samples
    from draftwise.decoding import generate, stream
    from draftwise.drafters.base import Drafter
    from draftwise.drafters.corpus import Corpus
    from draftwise.drafters.draft_model import DraftModel
    from draftwise.drafters.growth import DynamicTree, StaticTree
    from draftwise.drafters.heads import calibrated_tree, layers_read, load_heads
    from draftwise.drafters.input_copy import InputCopy
    from draftwise.drafters.ngram import NgramModel
    from draftwise.drafters.none import NoDrafter
    from draftwise.drafters.online_ngram import OnlineNgramModel
    from draftwise.drafters.prompt_lookup import PromptLookup
    from draftwise.drafters.recycling import TokenRecycling
    from draftwise.drafters.self_speculation import SelfSpeculation
    from draftwise.drafters.several import Several
    from draftwise.drafters.suffix import Suffix
    from draftwise.drafters.translation.model import TranslatedModel
    from draftwise.drafters.translation.text import TextDraftModel
    from draftwise.drafters.tree import TreeDraftModel
    from draftwise.errors import (
        DraftwiseError,
        ModelError,
        OptionError,
        PromptError,
        TokenizerMismatchError,
        UnsupportedError,
    )
    from draftwise.models.base import LanguageModel
    from draftwise.models.load import load
    from draftwise.request import Request
    from draftwise.sampling import Sampler, SamplingParams
    from draftwise.sampling.grammar import Grammar
    from draftwise.scoring import Score, score
    from draftwise.tokenizer import Tokenizer
    from draftwise.types import Draft, FinishReason, Generation, Origin, Seconds, Step, TokenLogprob

__all__ = [
    "Audit",
    "Batch",
    "Corpus",
    "Draft",
    "DraftModel",
    "Drafter",
    "DraftwiseError",
    "DynamicTree",
    "Finding",
    "FinishReason",
    "Generation",
    "Grammar",
    "InputCopy",
    "LanguageModel",
    "ModelError",
    "NgramModel",
    "NoDrafter",
    "OnlineNgramModel",
    "OptionError",
    "Origin",
    "PromptError",
    "PromptLookup",
    "Request",
    "Sampler",
    "SamplingParams",
    "Score",
    "Seconds",
    "SelfSpeculation",
    "Several",
    "StaticTree",
    "Step",
    "Suffix",
    "TextDraftModel",
    "TokenLogprob",
    "TokenRecycling",
    "Tokenizer",
    "TokenizerMismatchError",
    "TranslatedModel",
    "TreeDraftModel",
    "UnsupportedError",
    "audit",
    "calibrated_tree",
    "generate",
    "generate_batch",
    "generate_samples",
    "layers_read",
    "load",
    "load_heads",
    "score",
    "stream",
]

_NAMES_BY_MODULE = {
    "auditing.audit": ("Audit", "Finding", "audit"),
    "batches": ("generate_batch", "generate_samples"),
    "decoding": ("Batch", "generate", "stream"),
    "request": ("Request",),
    "scoring": ("Score", "score"),
    "drafters.base": ("Drafter",),
    "drafters.corpus": ("Corpus",),
    "drafters.draft_model": ("DraftModel",),
    "drafters.growth": ("DynamicTree", "StaticTree"),
    "drafters.heads": ("calibrated_tree", "layers_read", "load_heads"),
    "drafters.input_copy": ("InputCopy",),
    "drafters.ngram": ("NgramModel",),
    "drafters.none": ("NoDrafter",),
    "drafters.online_ngram": ("OnlineNgramModel",),
    "drafters.prompt_lookup": ("PromptLookup",),
    "drafters.translation.model": ("TranslatedModel",),
    "drafters.translation.text": ("TextDraftModel",),
    "drafters.tree": ("TreeDraftModel",),
    "drafters.recycling": ("TokenRecycling",),
    "drafters.self_speculation": ("SelfSpeculation",),
    "drafters.several": ("Several",),
    "drafters.suffix": ("Suffix",),
    "errors": (
        "DraftwiseError",
        "ModelError",
        "OptionError",
        "PromptError",
        "TokenizerMismatchError",
        "UnsupportedError",
    ),
    "models.base": ("LanguageModel",),
    "models.load": ("load",),
    "sampling": ("Sampler", "SamplingParams"),
    "sampling.grammar": ("Grammar",),
    "tokenizer": ("Tokenizer",),
    "types": ("Draft", "FinishReason", "Generation", "Origin", "Seconds", "Step", "TokenLogprob"),
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
