"""From logits to the next token: what the caller asks for, and the distribution that it makes."""

from draftwise.sampling.distribution import adjusted_probs, kth_largest, likeliest, nucleus_cutoff, point_mass
from draftwise.sampling.params import SamplingParams
from draftwise.sampling.sampler import Distributions, Sampler

__all__ = [
    "Distributions",
    "Sampler",
    "SamplingParams",
    "adjusted_probs",
    "kth_largest",
    "likeliest",
    "nucleus_cutoff",
    "point_mass",
]
