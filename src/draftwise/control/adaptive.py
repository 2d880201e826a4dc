"""As many draft tokens as pay, from the drafter that pays best: none, where that is best."""

from collections.abc import Sequence as Rows

from draftwise.control.base import Limit, UpTo
from draftwise.control.cost import CostModel
from draftwise.control.learnt import Learnt
from draftwise.control.reckoned import Pass, Reckoned
from draftwise.sequence import Sequence
from draftwise.types import Step


class Adaptive:
    """The renewal rule: of all drafters and lengths n, 0 included, the one with the most E[tokens] - λ time.

    Generation is a renewal process, each step of which costs time and yields tokens. λ is the rate reached
    of late, at least that of plain decoding: to spend more time in a step pays if it yields tokens faster
    than that. Acceptance is estimated for each drafter from what became of its drafts; time comes from
    `costs`. Where the next token does not pay several may, so all lengths are looked at. What does not seem
    to pay is tried now and then, from an allowance into which goes a share of the time and what trials win.

    It decides for a drafter that is `Several`, and for each row by what became of its own drafts. No
    decision on a token depends on its value, nor on the clock where the costs are constant.
    """

    def __init__(self, costs: CostModel) -> None:
        self._learnt = Learnt(costs)
        self._limits: dict[int, Reckoned] = {}  # by row

    def begin(self, row: int, sequence: Sequence) -> None:
        """The drafters have read nothing of the new sequence, and nobody knows how well they guess it."""
        self._learnt.forget(row)

    def limits(self, rows: Rows[Sequence]) -> list[Limit]:
        active = {row: sequence for row, sequence in enumerate(rows) if not sequence.finish_reason}
        each_alone = [{row: sequence} for row, sequence in active.items()]
        self._limits = {}
        for together in [active] if active and self._learnt.costs.rows_share_passes else each_alone:
            self._limits |= Pass(self._learnt, together).limits
        return [self._limits.get(row, UpTo(0)) for row in range(len(rows))]

    def observe(self, step: Step) -> None:
        learnt, limit, num_drafted = self._learnt, self._limits[step.row], len(step.drafted)
        drafter, seconds = limit.drafter, limit.seconds(num_drafted)
        learnt.count(step.num_accepted + 1, seconds)
        learnt.trials.step(seconds, limit.shared.plain)
        for other, lead in limit.leads.items():
            limit.standings[other].misses(lead, step.num_accepted + 1)
        if drafter is not None:
            if limit.ventured is not None:
                learnt.trials.won(limit.won(num_drafted, step.num_accepted))
            learnt.trials.drafted(drafter, failed=limit.ventured == 0 and not step.num_accepted)
            standing = limit.standings[drafter]
            standing.drafts(limit.context_length + step.num_accepted)
            standing.acceptance.observe(
                limit.known_of(num_drafted, step.parents),
                step.num_accepted,
                step.parents,
                step.path,
                limit.refused,
            )
        if step.num_fed == num_drafted + 1:  # no prompt was read
            drafted = None if drafter is None else (drafter, limit.paid)
            learnt.costs.observe(step.seconds, num_drafted + 1, drafted, limit.context_length, limit.reading)
