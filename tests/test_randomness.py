from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from draftwise.errors import OptionError
from draftwise.randomness import CoupledStreams, Randomness, RandomStream, Streams, draw
from draftwise.theory import acceptance_rate
from draftwise.types import Probs

SMALLEST_UNIFORM = 2.0**-53


def stream(seed: int) -> RandomStream:
    return RandomStream(np.random.SeedSequence(seed))


def always(uniform: float) -> Callable[[], float]:
    return lambda: uniform


@given(
    st.lists(st.integers(0, 64), min_size=1, max_size=16).filter(any),
    st.sampled_from([np.float32, np.float64]),
)
@example([1, 0, 1], np.float64)
def test_a_choice_between_few_gives_each_its_share(counts: list[int], dtype: type[np.floating]) -> None:
    """A grid of uniforms hits each index exactly as often as its weight says."""
    weights = np.array(counts, dtype)
    total = sum(counts)
    drawn = Counter(draw(weights, always((k + 0.5) / total)) for k in range(total))
    assert drawn == Counter({index: count for index, count in enumerate(counts) if count})


@pytest.mark.parametrize("size", [17, 100, 255, 256])
def test_choices_one_after_the_other_give_each_index_its_share(size: int) -> None:
    """Groups of 16: the grid of the two uniforms, weighed by how much of each a group has."""
    counts = np.random.default_rng(size).integers(0, 4, size)
    total = int(counts.sum())
    groups = [counts[begin : begin + 16] for begin in range(0, size, 16)]
    drawn: Counter[int] = Counter()
    for first in range(total):
        group = int(np.searchsorted(np.cumsum([each.sum() for each in groups]), first + 1))
        held = int(groups[group].sum())
        for second in range(held):
            uniforms = iter([(first + 0.5) / total, (second + 0.5) / held])
            drawn[draw(counts.astype(np.float64), partial(next, uniforms))] += 1
    for index, count in enumerate(counts.tolist()):
        # The group comes `held` times, and each time its index `count` times.
        assert drawn[index] == count * groups[index // 16].sum()


def test_a_large_vocabulary_gives_each_index_its_share() -> None:
    weights = np.random.default_rng(0).random(1000) ** 4
    weights[::7] = 0
    random = np.random.default_rng(1)
    drawn = np.bincount([draw(weights, random.random) for _ in range(200_000)], minlength=1000)
    assert not drawn[::7].any()
    possible = weights > 0
    expected = weights[possible] / weights.sum() * 200_000
    frequent = expected > 20
    observed = [*drawn[possible][frequent], drawn[possible][~frequent].sum()]
    assert chisquare(observed, [*expected[frequent], expected[~frequent].sum()]).pvalue > 1e-4


def test_the_last_bits_of_probabilities_hardly_ever_change_what_is_drawn() -> None:
    """Noise as between passes of different widths: the edges of one cumulative sum would move with it."""
    random = np.random.default_rng(0)
    logits = 2.5 * random.standard_normal(20_000)
    probs, others = (np.exp(logits + noise * random.standard_normal(20_000)) for noise in (0.0, 1e-4))

    def by_one_sum(probs: Probs, uniform: Callable[[], float]) -> int:
        return int(np.searchsorted(probs.cumsum(), uniform() * probs.sum()))

    changed = {
        sample: sum(
            sample(probs, np.random.default_rng(seed).random)
            != sample(others, np.random.default_rng(seed).random)
            for seed in range(1000)
        )
        for sample in (draw, by_one_sum)
    }
    assert changed[by_one_sum] > 10 * changed[draw]


def test_what_is_certain_takes_as_many_random_numbers_as_what_is_not() -> None:
    """Else all that follows would be drawn otherwise where a probability rounds to one, or does not."""
    nearly = np.zeros(1000, np.float32)
    nearly[[7, 900]] = 1, 1e-20
    certain = np.where(nearly == 1, nearly, 0)
    after = []
    for probs in (nearly, certain):
        random = stream(0)
        assert random.sample(probs) == 7
        after.append(random.sample(np.full(1000, 1e-3)))
    assert after[0] == after[1]


@pytest.mark.parametrize("uniform", [SMALLEST_UNIFORM, 0.5, 1.0])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 255, 256, 257, 4096, 4097, 49_152])
def test_the_only_possible_index_is_drawn_at_both_ends(size: int, uniform: float) -> None:
    for index in {0, size // 2, size - 1}:
        probs = np.zeros(size, np.float32)
        probs[index] = 1
        assert draw(probs, always(uniform)) == index


def test_the_ends_are_the_first_and_the_last_possible_index() -> None:
    rng = np.random.default_rng(0)
    for size in (10, 300, 1000):
        probs = rng.random(size).astype(np.float32)
        probs[:3] = probs[-3:] = 0
        assert draw(probs, always(SMALLEST_UNIFORM)) == 3
        assert draw(probs, always(1.0)) == size - 4


def test_rounding_between_groups_never_draws_what_is_impossible() -> None:
    """A uniform that falls on the edge between two groups, as exactly as floats can say it."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        probs: Probs = rng.random(700) ** 8
        probs[rng.random(700) < 0.5] = 0
        edge = probs[:256].sum() / probs.sum()
        for uniform in (np.nextafter(edge, 0), edge, np.nextafter(edge, 1)):
            assert probs[draw(probs, always(uniform))] > 0


def test_accept_at_the_ends() -> None:
    random = stream(0)
    assert not any(random.accept(0.0) for _ in range(1000))
    assert all(random.accept(1.0) for _ in range(1000))


def test_the_smallest_draw_does_not_win_at_probability_zero() -> None:
    class Zero:
        def random(self) -> float:
            return 0.0

    random = stream(0)
    random._generator = Zero()  # type: ignore[assignment]
    assert not random.accept(0.0)
    assert random.accept(1.0)
    assert random.sample(np.array([0.0, 0.5, 0.5, 0.0])) == 2


def test_accept_has_its_probability() -> None:
    random = stream(0)
    accepted = sum(random.accept(0.3) for _ in range(10_000))
    assert accepted == pytest.approx(3000, abs=5 * (10_000 * 0.3 * 0.7) ** 0.5)


def decisions(streams: Streams) -> list[list[bool]]:
    each = (streams.drafting, streams.acceptance, streams.recovery)
    return [[random.accept(0.5) for _ in range(64)] for random in each]


def test_one_seed_gives_three_streams_that_repeat_and_differ() -> None:
    assert decisions(Streams.seeded(7)) == decisions(Streams.seeded(7))
    drafting, acceptance, recovery = decisions(Streams.seeded(7))
    assert drafting != acceptance != recovery != drafting
    assert decisions(Streams.seeded(7)) != decisions(Streams.seeded(8))


def test_without_a_seed_every_time_is_another() -> None:
    assert decisions(Streams.seeded(None)) != decisions(Streams.seeded(None))


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(OptionError, match="seed is -1"):
        Streams.seeded(-1)


NOISY = np.array([0.5, 0.0, 0.3, 0.2])


def noise(seed: int, position: int = 0) -> Randomness:
    return CoupledStreams(seed).at(position).drafting


def test_noise_of_a_position_is_the_same_for_all_who_draw_there() -> None:
    streams = CoupledStreams(3).at(10)
    ahead = [streams.drafting.sample(NOISY) for _ in range(50)]
    assert [streams.recovery.sample(NOISY) for _ in range(50)] == ahead
    assert [noise(3, 10 + offset).sample(NOISY) for offset in range(50)] == ahead
    assert [noise(4, 10 + offset).sample(NOISY) for offset in range(50)] != ahead
    assert len(set(ahead)) == 3


def test_noise_draws_from_the_distribution() -> None:
    counts = np.bincount([noise(seed).sample(NOISY) for seed in range(4000)], minlength=4)
    assert counts[1] == 0
    assert chisquare(counts[[0, 2, 3]], 4000 * NOISY[[0, 2, 3]]).pvalue > 1e-3
    along = noise(0)
    pairs = Counter((along.sample(NOISY), along.sample(NOISY)) for _ in range(4000))
    law = {(one, other): NOISY[one] * NOISY[other] for one in (0, 2, 3) for other in (0, 2, 3)}
    observed, expected = [pairs[pair] for pair in law], [4000 * p for p in law.values()]
    assert chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("width", [4, 3, 9])
def test_similar_distributions_mostly_draw_the_same_token(width: int) -> None:
    """Also of another width. The rate is at least that of the bound (1 - d) / (1 + d), 2408.07978."""
    other = np.zeros(width)
    other[:3] = [0.4, 0.1, 0.5]
    similar = [noise(seed).sample(NOISY) == noise(seed).sample(other) for seed in range(2000)]
    apart = 1 - acceptance_rate(NOISY, other)
    assert np.mean(similar) > (1 - apart) / (1 + apart) - 0.03


def test_noise_accepts_with_its_probability() -> None:
    random = noise(0)
    assert not any(random.accept(0.0) for _ in range(1000))
    assert all(random.accept(1.0) for _ in range(1000))
    accepted = sum(random.accept(0.3) for _ in range(10_000))
    assert accepted == pytest.approx(3000, abs=5 * (10_000 * 0.3 * 0.7) ** 0.5)


def test_noise_without_a_seed_is_another_every_time() -> None:
    one, other = (CoupledStreams(None).at(0).drafting for _ in range(2))
    assert [one.accept(0.5) for _ in range(64)] != [other.accept(0.5) for _ in range(64)]
    with pytest.raises(OptionError, match="seed is -1"):
        CoupledStreams(-1)
