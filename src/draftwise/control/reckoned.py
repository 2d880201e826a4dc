"""What one step may draft: it reckons for each row whether the next token, or several, would pay."""

from collections.abc import Iterator
from collections.abc import Sequence as Rows
from itertools import accumulate, zip_longest

from draftwise.control.acceptance import MOST
from draftwise.control.learnt import Learnt
from draftwise.sequence import Sequence

_NEGLIGIBLE = 0.01  # a token so unlikely pays for nothing


class Pass:
    """What rows that are verified together have in common: a pass as wide as the longest of their drafts.

    A token within that width is verified for nothing. One beyond it pays if it does with all that the rows
    then expect, and each of them bears what it costs by its part of that.
    """

    def __init__(self, learnt: Learnt, rows: dict[int, Sequence]) -> None:
        self.num_rows = len(rows)
        longest = max(len(sequence.token_ids) for sequence in rows.values())
        self.verify = learnt.costs.verify(longest, self.num_rows)  # by the width of each
        self.plain = self.verify[1] / self.num_rows  # seconds of each row's share without drafts
        self.draft_share = learnt.costs.draft_share(longest, self.num_rows)
        self.rate = learnt.rate(self.plain)
        self.limits = {row: Reckoned(learnt, self, row, sequence) for row, sequence in rows.items()}
        for limit in self.limits.values():
            limit.others = [other for other in self.limits.values() if other is not limit]


class Reckoned:
    """The limit of one row in one step: it reckons whether the next token, or several, would pay."""

    def __init__(self, learnt: Learnt, shared: Pass, row: int, sequence: Sequence) -> None:
        self.shared = shared
        self.others: Rows[Reckoned] = ()  # the limits of the other rows
        self.drafter: int | None = None
        self.context_length = len(sequence.token_ids)
        self.length = 0  # of the draft, so far
        self.reading = 0.0  # seconds that the chosen drafter takes to read what it has not
        self.paid = 0  # depths whose drafting is paid for, drawn or not
        self.refused: tuple[int, float] | None = None  # the last token that was, as Acceptance learns of it
        self.leads: dict[int, float] = {}  # seconds that each drafter would win over all others, had it read
        self.ventured: int | None = None  # the tokens before those that do not seem to pay, and are tried
        self.forgone = 0.0  # seconds that the best draft would have won over plain decoding
        self.standings = learnt.standings(row)  # of each drafter
        self._trials = learnt.trials
        self._costs = learnt.costs
        self._drafts = [
            learnt.costs.draft(drafter, self.context_length) for drafter in range(learnt.costs.num_drafters)
        ]
        self._room = min(sequence.room, MOST)
        self._budget = sequence.budget
        # Of the text, and of each token drafted or yet to come: how likely all of them up to it are accepted.
        self._survival = [1.0]
        # Of the text, and of each token allowed.
        self._depths = [0]
        self._parents = [-1]
        self._confidences: list[float | None] = [None]
        self._is_open = self._room > 0  # whether the drafter is yet to be chosen

    def choose(self, confidences: Rows[float | None]) -> int | None:
        """The drafter that wins the most time, of those whose reading pays, or none; now and then a trial."""
        gains: dict[int, float] = {}
        losses: dict[int, float] = {}
        readings: dict[int, float] = {}
        for drafter, confidence in enumerate(confidences):
            if confidence != 0 and self._room:
                wins = list(self._wins(drafter, 0, 0, self._first(drafter, confidence)))
                reading = self._reading(drafter) if confidence is None else 0.0
                gains[drafter], losses[drafter], readings[drafter] = max(wins), reading - wins[0], reading
        for drafter, gain in gains.items():
            others = [other_gain for other, other_gain in gains.items() if other != drafter]
            self.leads[drafter] = max(0.0, gain - max([0.0, *others]))
        ready = [drafter for drafter, reading in readings.items() if self._is_worth(drafter, reading)]
        best = max(ready, key=lambda drafter: gains[drafter], default=None)
        if best is not None and gains[best] > 0:
            self.forgone, self.drafter = gains[best], best
            del losses[best]
        trial = self._trials.due({drafter: self.forgone + loss for drafter, loss in losses.items()})
        if trial is not None:
            self.ventured, self.drafter = 0, trial
        self._is_open = False
        if self.drafter is not None:
            self.reading = readings[self.drafter]
            self._survival[1:] = self._first(self.drafter, confidences[self.drafter])
        return self.drafter

    def allows(self, num_drafted: int, confidence: float | None = None, parent: int | None = None) -> bool:
        if self.drafter is None:  # none is chosen, or not yet
            return num_drafted < self._room
        after, depth = (
            (num_drafted - 1, num_drafted) if parent is None else (parent, self._depths[parent + 1])
        )
        if confidence is None and num_drafted == 0:  # settled by the choice
            return self._takes(num_drafted, after, depth, confidence)
        if confidence is None and parent is not None:
            return num_drafted < self._room and self._deepens(self.drafter, after, depth)
        ahead = self._ahead(self.drafter, confidence, after, depth)
        survivals = self._survivals(num_drafted, after, ahead)
        allowed = num_drafted < self._room and (
            num_drafted == self.ventured == 0  # tried, whatever it turns out to be
            or any(win > 0 for win in self._wins(self.drafter, num_drafted, depth, survivals))
            or (confidence is None and self._ventures(self.drafter, num_drafted, depth, survivals))
        )
        self._survival[num_drafted + 1 :] = survivals if allowed else []
        if allowed:
            return self._takes(num_drafted, after, depth, confidence)
        self.length = num_drafted
        if confidence is not None:
            self.refused = after, ahead[0]
        return False

    def _takes(self, num_drafted: int, parent: int, depth: int, confidence: float | None) -> bool:
        """Draft one token more, below `parent`, which is at `depth`."""
        self.length = num_drafted + 1
        self.paid = max(self.paid, depth + 1)
        self._depths[num_drafted + 1 :] = [depth + 1]
        self._parents[num_drafted + 1 :] = [parent]
        self._confidences[num_drafted + 1 :] = [confidence]
        return True

    def known_of(self, num_drafted: int, parents: Rows[int] | None) -> list[float | None]:
        """The confidences of a draft's tokens; all None of a tree that is not the one that was allowed."""
        if parents is None or list(parents) == self._parents[1 : num_drafted + 1]:
            return self._confidences[1 : num_drafted + 1]
        return [None] * num_drafted

    def seconds(self, num_drafted: int) -> float:
        """Predicted seconds of the step, after a draft of `num_drafted` tokens: the row's share of them."""
        return self.shared.draft_share * self._draft(self.drafter)[self.paid] + self._verification(
            num_drafted
        )

    def won(self, num_drafted: int, num_accepted: int) -> float:
        """Seconds won by what was ventured, over what it was ventured in place of."""
        before = self.ventured or 0
        draft, verify = self._draft(self.drafter), self.shared.verify
        instead = self.shared.draft_share * draft[before] + verify[before + 1] / self.shared.num_rows
        won = max(0, num_accepted - before) / self.shared.rate - (self.seconds(num_drafted) - instead)
        return won - self.forgone

    def _ventures(self, drafter: int, num_drafted: int, depth: int, survivals: Rows[float]) -> bool:
        """Whether to try one token that does not seem to pay, of a drafter that tells nothing of its tokens.

        Deep tokens are seldom seen, and taken for as good as those before them: it is tried where it might
        pay if it and what follows are better by as much as is not known of them.
        """
        if self.ventured not in (None, num_drafted) or self._confidences[num_drafted] is not None:
            return False
        if not self._trials.affords(-next(self._wins(drafter, num_drafted, depth, survivals))):
            return False
        hoped = self._survivals(num_drafted, num_drafted - 1, self.standings[drafter].acceptance.hoped(depth))
        may_pay = any(win > 0 for win in self._wins(drafter, num_drafted, depth, hoped))
        if may_pay:
            self.ventured, self.forgone = num_drafted, 0.0
        return may_pay

    def _wins(self, drafter: int, num_drafted: int, depth: int, survivals: Rows[float]) -> Iterator[float]:
        """Seconds won by one token more than `num_drafted`, by two, and so on, over a draft that ends.

        They follow one another below a token at `depth`.
        """
        draft, verify, paid = self._draft(drafter), self.shared.verify, self.paid
        draft_share, rate = self.shared.draft_share, self.shared.rate
        longest = self._longest(num_drafted)
        drafted, verified = draft[max(depth, paid)], verify[longest + 1]
        # What is not known of a row is as of this one.
        alike = 1 + sum([other._is_open for other in self.others])
        # A row that did not come as far as this one has ended its draft.
        going = [other._survival for other in self.others if not 0 < other.length < num_drafted]
        elsewhere = [sum(each) for each in zip_longest(*going, fillvalue=0.0)]
        tokens = beyond = together = 0.0
        for ahead, survival in enumerate(survivals, 1):
            tokens += survival
            win = tokens / rate
            if depth + ahead > paid:
                win -= draft_share * (draft[depth + ahead] - drafted)
            length = num_drafted + ahead
            if length > longest:
                beyond += survival
                together += survival * alike + (elsewhere[length] if length < len(elsewhere) else 0.0)
                win -= (verify[length + 1] - verified) * (beyond / together if together else 1.0)
            yield win

    def _deepens(self, drafter: int, parent: int, depth: int) -> bool:
        """Whether it pays to work for another depth of a tree: below each token as deep as `parent`."""
        draft, drafted = self._draft(drafter), self._survival[1 : len(self._depths)]
        probability = self._ahead(drafter, None, parent, depth)[0]
        level = (each for each, at in zip(self._survival, self._depths, strict=False) if at == depth)
        cost = self.shared.draft_share * (draft[max(depth + 1, self.paid)] - draft[self.paid])
        deepens = self._worth([*drafted, *(each * probability for each in level)]) - cost > self._worth(
            drafted
        )
        self.paid = max(self.paid, depth + deepens)
        return deepens

    def _worth(self, survivals: Rows[float]) -> float:
        """Seconds, but for drafting, that are won by those of the tokens that are worth verifying."""
        likeliest = sorted(survivals, reverse=True)[: self._room]
        return max(
            tokens / self.shared.rate - self._verification(length)
            for length, tokens in enumerate(accumulate(likeliest, initial=0.0))
        )

    def _verification(self, num_drafted: int) -> float:
        """Seconds of the pass, the row's share of them."""
        return self.shared.verify[self._longest(num_drafted) + 1] / self.shared.num_rows

    def _longest(self, num_drafted: int) -> int:
        """Tokens of the longest draft so far, where this row's has `num_drafted`."""
        return max([num_drafted, *[other.length for other in self.others]])

    def _first(self, drafter: int, confidence: float | None) -> list[float]:
        return self._survivals(0, -1, self._ahead(drafter, confidence, -1, 0))

    def _survivals(self, num_drafted: int, parent: int, ahead: Rows[float]) -> list[float]:
        """How likely the next token, and each that follows it, is accepted with all before it.

        `ahead`: the same, given that those before it are. As far as that is likely enough to pay for
        anything, and of the next one at least.
        """
        survivals: list[float] = []
        survival = self._survival[parent + 1]
        for chance in ahead[: self._room - num_drafted]:
            survival *= chance
            if survival < _NEGLIGIBLE and survivals:
                break
            survivals.append(survival)
        return survivals

    def _ahead(self, drafter: int, confidence: float | None, parent: int, depth: int) -> Rows[float]:
        """The probabilities of the next token and those after it, each given that all before are accepted."""
        acceptance = self.standings[drafter].acceptance
        if confidence is None and depth and (before := self._confidences[parent + 1]) is not None:
            return acceptance.ahead(depth - 1, before)[1:]
        return acceptance.ahead(depth, confidence)

    def _draft(self, drafter: int | None) -> Rows[float]:
        return (0.0,) if drafter is None else self._drafts[drafter]

    def _reading(self, drafter: int) -> float:
        """Seconds to read what a drafter has not, of all that comes before the last token."""
        return self._costs.read(drafter, self.context_length - 1 - self.standings[drafter].num_read)

    def _is_worth(self, drafter: int, reading: float) -> bool:
        return self.standings[drafter].is_worth(reading, self.leads[drafter], self._budget)
