"""From logits to the adjusted distribution that is sampled from (2211.17192, section 2.2)."""

import numpy as np
from numpy.typing import DTypeLike, NDArray

from draftwise.errors import ModelError
from draftwise.sampling.params import SamplingParams
from draftwise.types import Logits, Probs


def adjusted_probs(logits: Logits, sampling: SamplingParams) -> Probs:
    """The distribution that one position is sampled from, in the dtype of its logits.

    `logits`: `[vocabulary]`; -inf bans a token. Greedy puts all mass on the most likely token, on a tie the
    first. Raises ModelError where the logits hold NaN or +inf, or ban every token.
    """
    best = int(logits.argmax())  # the first NaN, if there is one
    if not np.isfinite(logits[best]):
        raise ModelError(
            f"no distribution follows from these logits: the largest of {len(logits)} is {logits[best]}; "
            "check the model's weights and precision, and that something is left to sample."
        )
    if sampling.temperature == 0:
        return point_mass(best, len(logits), logits.dtype)
    precision = np.finfo(logits.dtype)
    temperature = min(max(sampling.temperature, float(precision.tiny)), float(precision.max))
    with np.errstate(over="ignore"):  # a difference too large for the dtype is -inf: no mass
        scaled = (logits - logits[best]) / temperature
    weights: Probs = np.exp(scaled)  # the largest is 1
    if sampling.top_k is not None:
        weights *= scaled >= kth_largest(scaled, min(sampling.top_k, len(scaled)))
    if sampling.top_p < 1:
        weights *= weights >= nucleus_cutoff(weights, sampling.top_p)
    if sampling.min_p > 0:
        weights *= weights >= sampling.min_p
    if sampling.typical_p < 1:
        weights *= is_typical(weights / weights.sum(), sampling.typical_p)
    weights /= weights.sum()
    return weights


def point_mass(token_id: int, size: int, dtype: DTypeLike) -> Probs:
    """The distribution `[size]` that is certain of one token."""
    probs: Probs = np.zeros(size, dtype)
    probs[token_id] = 1
    return probs


def kth_largest(values: Logits, k: int) -> np.floating:
    """The k-th largest of `values`, for k up to their number.

    The k-th largest of the maxima of blocks is at most that, so only what reaches it needs partitioning.
    """
    maxima = np.maximum.reduceat(values, np.arange(0, len(values), 64))
    if k <= len(maxima):
        values = values[values >= np.partition(maxima, -k)[-k]]
    kth: np.floating = np.partition(values, -k)[-k]
    return kth


def likeliest(scores: Logits, count: int, above: float = -np.inf) -> list[int]:
    """The indices of the `count` largest of `scores` that are above a bound, the largest first, of equals
    the first; fewer where there are not so many.
    """
    if not count:
        return []
    least = kth_largest(scores, min(count, len(scores)))
    candidates = np.flatnonzero(scores >= least if least > above else scores > above)
    ranked: list[int] = candidates[np.argsort(-scores[candidates], kind="stable")][:count].tolist()
    return ranked


def nucleus_cutoff(weights: Probs, top_p: float) -> np.floating:
    """The smallest weight in the nucleus: the fewest largest weights that hold `top_p` of the total.

    Only weights above a threshold are looked at. It starts high and falls until they hold enough, at the
    latest where all the others together could not hold the rest; zero is for rounding.
    """
    total = float(weights.sum())
    threshold = weights.dot(weights) / total  # the mean weight of a drawn token
    others_cannot = (1 - top_p) * total / len(weights)
    while (largest := weights[weights >= threshold]).sum() < top_p * total and threshold:
        threshold = threshold / 16 if threshold > others_cannot else 0.0

    missing = top_p * total
    while len(largest) > 256:  # a weighted quickselect, so that only a few are sorted
        middle = len(largest) // 2
        largest.partition(middle)
        upper_half = largest[middle:].sum(dtype=np.float64)
        if upper_half >= missing:
            largest = largest[middle:]
        else:
            largest = largest[:middle]
            missing -= upper_half
    largest = np.sort(largest)[::-1]
    last = int(np.searchsorted(np.cumsum(largest, dtype=np.float64), missing))
    cutoff: np.floating = largest[min(last, len(largest) - 1)]
    return cutoff


def is_typical(probs: Probs, typical_p: float) -> NDArray[np.bool_]:
    """Which tokens are kept: the fewest that hold `typical_p`, nearest to the entropy first."""
    some = np.flatnonzero(probs)
    held = probs[some].astype(np.float64)
    information = -np.log(held)
    distances = np.abs(information - held @ information)
    kept = np.zeros(len(probs), np.bool_)
    kept[some[distances <= _reach(distances, held, typical_p)]] = True
    return kept


def _reach(distances: NDArray[np.float64], probs: NDArray[np.float64], mass: float) -> np.float64:
    """The smallest distance within which there is so much mass: a weighted quickselect, as in the nucleus."""
    while len(distances) > 256:
        order = np.argpartition(distances, len(distances) // 2)
        nearer, farther = np.split(order, [len(order) // 2])
        held = probs[nearer].sum()
        chosen = nearer
        if held < mass:
            chosen, mass = farther, mass - held
        distances, probs = distances[chosen], probs[chosen]
    order = np.argsort(distances)
    last = int(np.searchsorted(np.cumsum(probs[order]), mass))
    cutoff: np.float64 = distances[order][min(last, len(order) - 1)]
    return cutoff
