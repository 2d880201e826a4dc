"""Log-probabilities of emitted tokens, and of what else was likely in their place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from draftwise.checks import whole_number
from draftwise.errors import OptionError
from draftwise.sampling.distribution import likeliest
from draftwise.types import Logits, Probs, TokenLogprob

Distribution = Literal["raw", "adjusted"]


@dataclass(frozen=True, slots=True)
class Logprobs:
    """What is reported of each token: its log-probability, and those of the likeliest tokens there.

    `num_top`: how many of these. `distribution`: "raw" is the target's own, "adjusted" what the token was
    sampled from, after controls, temperature and filters. Raises OptionError for other values.
    """

    num_top: int = 0
    distribution: Distribution = "raw"

    def __post_init__(self) -> None:
        whole_number("logprobs", self.num_top, least=0)
        if self.distribution not in get_args(Distribution):
            names = " or ".join(get_args(Distribution))
            raise OptionError(f"logprobs_of is {self.distribution!r}; give {names}.")

    def of(
        self, token_ids: Sequence[int], path: Sequence[int], logits: Logits, target_probs: Sequence[Probs]
    ) -> tuple[TokenLogprob, ...]:
        """The report on tokens that follow one another.

        `logits` `[len(draft) + 1, vocabulary]` and `target_probs`: the target's after the text and after each
        token of a draft; `path`: the indices in the draft of all of the tokens but the last.
        """
        positions = (0, *(index + 1 for index in path))
        return tuple(
            self._of(
                token_id,
                log_softmax(logits[at]) if self.distribution == "raw" else _log(target_probs[at]),
            )
            for token_id, at in zip(token_ids, positions, strict=False)
        )

    def _of(self, token_id: int, logprobs: NDArray[np.floating]) -> TokenLogprob:
        top = tuple((other, float(logprobs[other])) for other in likeliest(logprobs, self.num_top))
        return TokenLogprob(token_id, float(logprobs[token_id]), top, self.distribution)


def log_softmax(logits: Logits) -> NDArray[np.floating]:
    """Log-probabilities `[vocabulary]`, in the dtype of the logits; their sum is taken in float64."""
    shifted = logits - logits.max()
    logprobs: NDArray[np.floating] = shifted - logits.dtype.type(
        np.log(np.exp(shifted, dtype=np.float64).sum())
    )
    return logprobs


def _log(probs: Probs) -> NDArray[np.floating]:
    with np.errstate(divide="ignore"):  # what cannot follow has -inf
        logprobs: NDArray[np.floating] = np.log(probs)
    return logprobs
