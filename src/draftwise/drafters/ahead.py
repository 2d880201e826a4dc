"""What a drafter's own model makes of the next token, under the controls of the text that it drafts for."""

import numpy as np

from draftwise.randomness import Randomness
from draftwise.sampling import Sampler, SamplingParams, adjusted_probs
from draftwise.types import Logits, Probs


class Next:
    """The next draft token before it is drawn: its distribution, and how sure the draft model is of it.

    A confidence of 0: the controls leave nothing that the draft model knows, so there is no token to draw.
    """

    def __init__(self, logits: Logits, sampler: Sampler) -> None:
        """`logits`: `[vocabulary]`, no wider than the target's."""
        scores = sampler.controlled(logits)
        self._best = int(np.argmax(scores))
        # Greedily a point mass; None says so, and spares the verification a row as wide as the vocabulary.
        self.probs: Probs | None = None
        if scores[self._best] == -np.inf:
            self.confidence = 0.0
        elif sampler.params.temperature == 0:
            self.confidence = 1 / float(np.exp(scores - scores[self._best]).sum())
        else:
            self.probs = adjusted_probs(scores, sampler.params)
            self.confidence = float(self.probs[self._best])

    def draw(self, randomness: Randomness) -> int:
        return self._best if self.probs is None else randomness.sample(self.probs)


def likelihood(logits: Logits, sampler: Sampler) -> Probs:
    """How likely each token is to follow; of a greedy row, too, by the drafter's softmax.

    Zero everywhere where the controls leave nothing that the draft model knows.
    """
    scores = sampler.controlled(logits)
    if scores.max() == -np.inf:
        return np.zeros_like(scores)
    return adjusted_probs(scores, sampler.params if sampler.params.temperature else SamplingParams(1.0))
