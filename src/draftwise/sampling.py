"""From logits to the adjusted distribution that is sampled from (2211.17192, section 2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from draftwise.types import Logits, Probs


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn; the default is greedy."""

    temperature: float = 0.0  # 0 takes the most likely token
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0


def adjusted_probs(logits: Logits, sampling: SamplingParams) -> Probs:
    """The distribution `[vocabulary]` that one position is sampled from."""
    raise NotImplementedError


class Distributions(Sequence[Probs]):
    """The adjusted distributions of consecutive positions, each computed when first asked for."""

    def __init__(self, logits: Logits, sampling: SamplingParams) -> None: ...
