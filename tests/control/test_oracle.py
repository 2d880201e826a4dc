"""The oracle pays for what is accepted and for nothing else."""

import numpy as np
import pytest

from draftwise.control.oracle import oracle_seconds
from draftwise.types import Seconds, Step


def step(num_drafted: int, num_accepted: int, draft: float, verify: float) -> Step:
    emitted = (0,) * (num_accepted + 1)
    return Step(0, (0,) * num_drafted, num_accepted, emitted, ("",) * len(emitted), 1, Seconds(draft, verify))


def test_rejected_tokens_are_paid_back() -> None:
    verify = [0.0, 1.0, 1.1, 1.3, 1.6, 2.0]
    steps = [step(4, 1, 0.4, verify[5]), step(0, 0, 0.0, verify[1]), step(2, 2, 0.2, verify[3])]
    assert oracle_seconds(steps, verify) == pytest.approx((0.1 + verify[2]) + verify[1] + (0.2 + verify[3]))


def test_the_bound_of_the_paper_is_reached() -> None:
    """Independent tokens, drafts without end: 1 / (1 - α + c α) tokens a pass' time (section 3.5)."""
    alpha, cost, longest = 0.7, 0.1, 200
    accepted = np.random.default_rng(0).geometric(1 - alpha, 20_000) - 1
    steps = [step(longest, int(count), cost * longest, 1.0) for count in accepted]
    tokens = sum(len(each.emitted) for each in steps)
    rate = tokens / oracle_seconds(steps, [1.0] * (longest + 2))
    assert rate == pytest.approx(1 / (1 - alpha + cost * alpha), rel=0.01)
