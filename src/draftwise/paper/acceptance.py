"""Tables 3 and 5: how often drafters guess what the target writes, exactly and with lenience."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwise.drafters.base import Drafter
from draftwise.journal import Journal
from draftwise.models.base import LanguageModel
from draftwise.paper.published import LENIENCES
from draftwise.planning.guesses import guesses
from draftwise.planning.text import Text, scored, write_text
from draftwise.progress import Progress
from draftwise.sampling import SamplingParams, adjusted_probs
from draftwise.theory import acceptance_rate
from draftwise.types import Logits, Probs


@dataclass(frozen=True, slots=True)
class Overlap:
    """How a drafter fares on one text: at how many positions it has a guess, and what is accepted of them.

    `accepted`: the sum over these positions of Σ min(p / l, q), for each l of LENIENCES, the first of which
    is the exact rule.
    """

    guessed: int
    accepted: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """One text that the target wrote after a prompt, and each drafter's guesses at it.

    `prompt`: its place among the prompts. `tokens`: how many were written.
    """

    temperature: float
    prompt: int
    tokens: int
    overlaps: Mapping[str, Overlap]

    @classmethod
    def from_object(cls, fields: Mapping[str, Any]) -> Self:
        """From what `asdict` made of one, by way of JSON."""
        overlaps = {
            name: Overlap(each["guessed"], tuple(each["accepted"]))
            for name, each in fields["overlaps"].items()
        }
        return cls(fields["temperature"], fields["prompt"], fields["tokens"], overlaps)


@dataclass(frozen=True, slots=True)
class Rates:
    """α of a drafter on all that the target wrote at one temperature, for each l of LENIENCES.

    It is the mean over the positions where there is a guess, None if there never is. `errors`: its standard
    errors, for texts drawn as these were, in which neighbouring positions may be alike; None for one text.
    `coverage`: the share of the `tokens` at which there is a guess.
    """

    drafter: str
    temperature: float
    alphas: tuple[float, ...] | None
    errors: tuple[float, ...] | None
    coverage: float
    tokens: int

    @classmethod
    def of(cls, drafter: str, measured: Sequence[Measured]) -> Self:
        """From all texts at one temperature, at least one."""
        found = [each.overlaps[drafter] for each in measured]
        counts = np.array([overlap.guessed for overlap in found])
        accepted = np.array([overlap.accepted for overlap in found])
        alphas = errors = None
        if total := counts.sum():
            means = accepted.sum(axis=0) / total
            alphas = tuple(means.tolist())
            errors = _standard_errors(accepted - counts[:, None] * means, total)
        tokens = sum(each.tokens for each in measured)
        return cls(drafter, measured[0].temperature, alphas, errors, float(total / tokens), tokens)


def _standard_errors(residuals: NDArray[np.float64], total: int) -> tuple[float, ...] | None:
    """Of ratios of sums over `[texts, ratios]`: the linearised variance of a ratio from clusters."""
    texts = len(residuals)
    if texts < 2:
        return None
    variances = (residuals**2).sum(axis=0) * texts / (texts - 1)
    return tuple((np.sqrt(variances) / total).tolist())


def measure_texts(
    target: LanguageModel,
    drafters: Mapping[str, Drafter],
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams,
    num_tokens: int,
    max_new_tokens: int,
    journal: Journal,
    progress: Progress,
) -> list[Measured]:
    """Have the target answer prompts (token ids), in turn, until it has written `num_tokens` tokens.

    Fewer where the prompts do not suffice; the last text is not cut. What `journal` has is taken from it, and
    each text is added to it as it is done.
    """
    earlier = [Measured.from_object(fields) for fields in journal.read()]
    done = {each.prompt: each for each in earlier if each.temperature == sampling.temperature}
    measured: list[Measured] = []
    written = 0
    for place, token_ids in enumerate(prompts):
        if written >= num_tokens:
            break
        if place not in done:
            text = write_text(target, token_ids, sampling=sampling, max_new_tokens=max_new_tokens, seed=place)
            overlaps = measure(target, drafters, text)
            done[place] = Measured(sampling.temperature, place, len(text), overlaps)
            journal.add([asdict(done[place])])
        measured.append(done[place])
        written += done[place].tokens
        progress(
            f"{num_tokens} tokens of {target.name} at temperature {sampling.temperature:g}",
            min(1.0, written / num_tokens),
        )
    return measured


def measure(target: LanguageModel, drafters: Mapping[str, Drafter], text: Text) -> dict[str, Overlap]:
    """How each drafter fares on a text that was written greedily or at a temperature alone.

    Every model, the target too, reads the text once, and side by side: a chunk of logits is held of each.
    """
    sampling = text.sampling
    guessing = [guesses(target, drafter, text, [sampling], 1) for drafter in drafters.values()]
    counts = np.zeros(len(drafters), np.int64)
    accepted = np.zeros((len(drafters), len(LENIENCES)))
    scores = scored(target, text, len(text))
    for logits, written, *guessed in zip(scores, text.output_ids, *guessing, strict=True):
        rule = _greedy(logits, written) if sampling.temperature == 0 else _sampled(logits, sampling)
        for index, guess in enumerate(guessed):
            if guess.length:
                counts[index] += 1
                accepted[index] += rule(guess.probs[0])
    return {
        name: Overlap(int(count), tuple(sums.tolist()))
        for name, count, sums in zip(drafters, counts, accepted, strict=True)
    }


def _sampled(logits: Logits, sampling: SamplingParams) -> Callable[[Probs], list[float]]:
    """Σ min(p / l, q) by l, for any q."""
    p = adjusted_probs(logits, sampling)
    return lambda q: [acceptance_rate(p, q, lenience) for lenience in LENIENCES]


def _greedy(logits: Logits, written: int) -> Callable[[Probs], list[float]]:
    """Whether a guess, of which q is certain, is accepted, by l.

    Lenience comes before the standardisation (A.5): p of the guess is at least l times the largest p. The
    exact rule is that the guess is what was `written`, also where two tokens are equally likely.
    """
    best = float(logits.max())

    def rule(q: Probs) -> list[float]:
        guess = int(q.argmax())
        share = np.exp(float(logits[guess]) - best)
        return [float(guess == written or share >= lenience < 1) for lenience in LENIENCES]

    return rule
