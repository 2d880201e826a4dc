"""What a drafter has read, what it takes to read the rest, and that this teaches nothing of drafting."""

import pytest

from draftwise.control.adaptive import Adaptive
from draftwise.control.cost import CostModel
from draftwise.control.reckoned import Reckoned
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import Sequence as Row
from draftwise.sequence import StopConditions
from draftwise.types import Seconds, Step

READING, DRAFTING = 0.01, 0.1  # seconds a token
PROMPT = 1000


def begun() -> tuple[Adaptive, CostModel, Row]:
    """A draft model that follows the clock, beside passes that take a second whatever their width."""
    costs = CostModel(
        lambda context: {1: 1.0},
        [lambda context: {1: DRAFTING, 32: 32 * DRAFTING}],
        [READING],
        constant=False,
    )
    row = Row([0] * PROMPT, StopConditions(10**9), Sampler(SamplingParams()), Streams.seeded(0), None)
    return Adaptive(costs), costs, row


def chosen(controller: Adaptive, row: Row) -> Reckoned:
    """The limit of the next step, in which the draft model is asked."""
    (limit,) = controller.limits([row])
    assert limit.choose([None]) == 0
    assert isinstance(limit, Reckoned)
    return limit


def drafted(controller: Adaptive, row: Row, limit: Reckoned, accepted: int) -> None:
    """Two tokens are drafted, in the time that is expected, and some accepted."""
    assert all(limit.allows(n) and limit.allows(n, 0.9) for n in range(2))
    seconds = Seconds(draft=limit.reading + 2 * DRAFTING, verify=1.0)
    emitted = (0,) * (accepted + 1)
    row.token_ids.extend(emitted)
    controller.observe(Step(0, (0, 0), accepted, emitted, ("",) * len(emitted), 3, seconds))


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_the_prompt_is_read_once_and_so_are_accepted_tokens(accepted: int) -> None:
    controller, _, row = begun()
    first = chosen(controller, row)
    assert first.reading == pytest.approx(READING * (PROMPT - 1))
    drafted(controller, row, first, accepted)
    assert chosen(controller, row).reading == 0


def test_tokens_that_were_written_without_it_are_to_be_read() -> None:
    controller, _, row = begun()
    drafted(controller, row, chosen(controller, row), 1)
    row.token_ids.extend([0] * 7)
    assert chosen(controller, row).reading == pytest.approx(7 * READING)


def test_a_long_reading_is_no_lesson_about_drafting() -> None:
    controller, costs, row = begun()
    drafted(controller, row, chosen(controller, row), 1)
    assert costs.draft(0, PROMPT)[1] == pytest.approx(DRAFTING)
    assert costs.read(0, 1) == pytest.approx(READING)
