"""The numbers that Leviathan, Kalman and Matias printed (2211.17192), to set ours beside."""

from dataclasses import dataclass

# Table 1, with c = ĉ = 0: (α, γ) to the factors of operations and of speed.
TABLE_1 = {
    (0.6, 2): (1.53, 1.96),
    (0.7, 3): (1.58, 2.53),
    (0.8, 2): (1.23, 2.44),
    (0.8, 5): (1.63, 3.69),
    (0.9, 2): (1.11, 2.71),
    (0.9, 10): (1.60, 6.86),
}


@dataclass(frozen=True, slots=True)
class Walltime:
    """A row of Table 4, whose measured speeds are also those of Table 2."""

    task: str
    draft_model: str
    temperature: float
    num_draft_tokens: int
    alpha: float
    cost: float
    expected: float
    measured: float


TABLE_4 = (
    Walltime("EnDe", "T5-small", 0, 7, 0.75, 0.02, 3.2, 3.4),
    Walltime("EnDe", "T5-base", 0, 7, 0.80, 0.04, 3.3, 2.8),
    Walltime("EnDe", "T5-large", 0, 7, 0.82, 0.11, 2.5, 1.7),
    Walltime("EnDe", "T5-small", 1, 7, 0.62, 0.02, 2.3, 2.6),
    Walltime("EnDe", "T5-base", 1, 5, 0.68, 0.04, 2.4, 2.4),
    Walltime("EnDe", "T5-large", 1, 3, 0.71, 0.11, 2.0, 1.4),
    Walltime("CNNDM", "T5-small", 0, 5, 0.65, 0.02, 2.4, 3.1),
    Walltime("CNNDM", "T5-base", 0, 5, 0.73, 0.04, 2.6, 3.0),
    Walltime("CNNDM", "T5-large", 0, 3, 0.74, 0.11, 2.0, 2.2),
    Walltime("CNNDM", "T5-small", 1, 5, 0.53, 0.02, 1.9, 2.3),
    Walltime("CNNDM", "T5-base", 1, 3, 0.55, 0.04, 1.8, 2.2),
    Walltime("CNNDM", "T5-large", 1, 3, 0.56, 0.11, 1.6, 1.7),
)
# Two of its expected speeds differ by this much from the formula at the printed, rounded α and c.
TABLE_4_ALLOWANCE = 0.08

# Table 3: (target, draft model) to α at temperature 0 and at 1.
TABLE_3 = {
    ("GPT-like 97M", "unigram"): (0.03, 0.03),
    ("GPT-like 97M", "bigram"): (0.05, 0.05),
    ("GPT-like 97M", "GPT-like 6M"): (0.88, 0.89),
    ("T5-XXL, EnDe", "unigram"): (0.08, 0.07),
    ("T5-XXL, EnDe", "bigram"): (0.20, 0.19),
    ("T5-XXL, EnDe", "T5-small"): (0.75, 0.62),
    ("T5-XXL, EnDe", "T5-base"): (0.80, 0.68),
    ("T5-XXL, EnDe", "T5-large"): (0.82, 0.71),
    ("T5-XXL, CNNDM", "unigram"): (0.13, 0.08),
    ("T5-XXL, CNNDM", "bigram"): (0.23, 0.16),
    ("T5-XXL, CNNDM", "T5-small"): (0.65, 0.53),
    ("T5-XXL, CNNDM", "T5-base"): (0.73, 0.55),
    ("T5-XXL, CNNDM", "T5-large"): (0.74, 0.56),
    ("LaMDA 137B", "LaMDA 100M"): (0.61, 0.57),
    ("LaMDA 137B", "LaMDA 2B"): (0.71, 0.71),
    ("LaMDA 137B", "LaMDA 8B"): (0.75, 0.74),
}

# Table 5: α of EnDe at temperature 1 by lenience; under greedy decoding only T5-small is printed.
LENIENCES = (1.0, 0.5, 0.3, 0.1)
TABLE_5 = {
    "unigram": (0.07, 0.10, 0.11, 0.16),
    "bigram": (0.19, 0.23, 0.25, 0.32),
    "T5-small": (0.62, 0.71, 0.76, 0.84),
    "T5-base": (0.68, 0.80, 0.83, 0.90),
}
TABLE_5_GREEDY = {"T5-small": (0.75, 0.75, 0.80, 0.87)}

# Figures 2 to 4: the curves that are drawn.
FIGURE_2_GAMMAS = (1, 3, 5, 7, 10)
FIGURE_3_COSTS = (0.01, 0.02, 0.05, 0.1)
FIGURE_4_GAMMAS = (3, 5, 7, 10)
