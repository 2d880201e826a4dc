"""The test of joint counts: how often it rejects what is so, and what it sees."""

from collections import Counter

import numpy as np
import pytest

from draftwise.auditing.samples import MIN_SAMPLES, Counts, followers, p_value

PROBS = np.array([0.4, 0.3, 0.2, 0.05, 0.03, 0.01, 0.009, 0.001])


def counted(probs: np.ndarray, total: int, seed: int) -> Counter[int]:
    drawn = np.random.default_rng(seed).multinomial(total, probs)
    return Counter({token_id: int(count) for token_id, count in enumerate(drawn) if count})


def test_p_values_of_the_law_itself_are_uniform() -> None:
    """Four tables each, some of them small; a tenth of 200 lies below each tenth."""
    values = [
        p_value(
            [Counts.of(counted(PROBS, size, 4 * seed + size), PROBS) for size in (20, 25, 200, 40)], seed, 400
        )
        for seed in range(200)
    ]
    for level in (0.1, 0.3, 0.5, 0.9):
        assert abs(np.mean(np.array(values) <= level) - level) < 4 * np.sqrt(level * (1 - level) / 200)


def test_another_law_is_seen() -> None:
    other = np.array([0.3, 0.4, *PROBS[2:]])
    assert p_value([Counts.of(counted(other, 1000, 0), PROBS)], 0) < 1e-4


def test_what_cannot_be_is_seen_at_once() -> None:
    certain = np.array([0.5, 0.5, 0.0])
    assert p_value([Counts.of(Counter({0: 60, 1: 60, 2: 1}), certain)], 0) < 1e-4
    assert p_value([Counts.of(Counter({0: 60, 1: 61}), certain)], 0) > 0.1


def test_rare_tokens_are_counted_together() -> None:
    table = Counts.of(Counter({0: 42, 1: 28, 3: 9, 6: 1, 7: 20}), PROBS)
    assert table.observed.tolist() == [42, 28, 0, 9, 0, 21]
    assert table.probs.tolist() == pytest.approx([0.4, 0.3, 0.2, 0.05, 0.03, 0.02])


def test_tokens_are_looked_at_after_beginnings_that_came_often() -> None:
    samples = [(1, 2)] * MIN_SAMPLES + [(3,)] * 5 + [(1,)]
    assert dict(followers(samples)) == {(): Counter({1: 21, 3: 5}), (1,): Counter({2: 20})}
