"""What changes logits before a token is drawn, in the order in which it applies."""

from draftwise.models.base import LanguageModel
from draftwise.sampling.params import SamplingParams
from draftwise.types import Control


def controls_of(params: SamplingParams, target: LanguageModel) -> tuple[Control, ...]:
    """The controls that the parameters ask for, in their order."""
    return tuple(params.processors)
