"""What a step costs: seconds of the target's pass over n positions, T(n), and of each drafter's n tokens."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from draftwise.control.curve import Curve, Points
from draftwise.drafters.base import Drafter
from draftwise.models.base import LanguageModel
from draftwise.types import Seconds

if TYPE_CHECKING:
    from draftwise.planning.profile import Profile

# The profiles of the targets in use, and the names in them of the drafters in use.
_known: "WeakKeyDictionary[LanguageModel, tuple[Profile, WeakKeyDictionary[Drafter, str]]]"
_known = WeakKeyDictionary()


class CostModel:
    """Predicts the seconds of a step from measured points, and keeps up with what steps really take.

    `verify`, `drafts`: the points of the target and of each drafter. `reading`: seconds that each drafter
    takes to read a token; None is nothing. `constant`: never learn from observed seconds, so that decisions
    repeat. `shared`: the points of passes that several rows share, by the positions of all of them; None
    where rows pass one by one.
    """

    def __init__(
        self,
        verify: Points,
        drafts: Sequence[Points],
        reading: Sequence[float] | None = None,
        *,
        constant: bool,
        shared: Points | None = None,
    ) -> None:
        self.rows_share_passes = shared is not None
        self._shared = shared or verify
        self._verify = {1: Curve(verify)}  # by the number of rows
        self._drafts = [Curve(points) for points in drafts]
        self._reading = reading or [0.0] * len(drafts)
        self._constant = constant

    @classmethod
    def measured(
        cls, target: LanguageModel, drafters: Sequence[Drafter], *, constant: bool, num_rows: int = 1
    ) -> "CostModel":
        """From the profile of a target and its drafters here, which is made where there is none.

        `num_rows`: the most that it is asked about.
        """
        if not drafters:  # nothing to decide
            return cls(lambda context_length: {1: 1.0}, (), constant=True)
        from draftwise.planning.profile import (
            drafter_key,
            profile_for,
        )  # which runs the loop that this serves

        profile, keys = _known.get(target, (None, WeakKeyDictionary()))
        shares = num_rows > 1 and target.rows_share_passes
        if (
            profile is None
            or not all(drafter in keys for drafter in drafters)
            or (shares and not profile.wider)
        ):
            profile = profile_for(target, list({*keys, *drafters}), wider=shares)
            keys.update({drafter: drafter_key(drafter) for drafter in drafters})
            _known[target] = profile, keys
        drafts = [partial(profile.draft_seconds, keys[drafter]) for drafter in drafters]
        return cls(
            profile.verify_seconds,
            drafts,
            [profile.drafters[keys[drafter]].read for drafter in drafters],
            constant=constant,
            shared=profile.shared_seconds if shares else None,
        )

    @property
    def num_drafters(self) -> int:
        return len(self._drafts)

    def verify(self, context_length: int, num_rows: int = 1) -> Sequence[float]:
        """T(n): seconds of a target pass over n positions of each row."""
        if num_rows not in self._verify:
            self._verify[num_rows] = Curve(self._shared, num_rows)
        return self._verify[num_rows].seconds(context_length)

    def draft(self, drafter: int, context_length: int) -> Sequence[float]:
        """Seconds that a drafter takes for n tokens."""
        return self._drafts[drafter].seconds(context_length)

    def draft_share(self, context_length: int, num_rows: int) -> float:
        """The part of a draft's seconds that is due to each of the rows that draft together."""
        return self.verify(context_length, num_rows)[1] / (num_rows * self.verify(context_length)[1])

    def read(self, drafter: int, num_tokens: int) -> float:
        """Seconds for a drafter to read tokens that it missed."""
        return self._drafts[drafter].pace * self._reading[drafter] * num_tokens

    def observe(
        self,
        seconds: Seconds,
        width: int,
        drafted: tuple[int, int] | None,
        context_length: int,
        reading: float = 0.0,
    ) -> None:
        """Learn what a step of one row took: a pass of `width` positions, after a drafter made its tokens.

        `drafted`: the drafter and the tokens that it worked for. `reading`: what `read` said of those that
        it had missed.
        """
        if not self._constant:
            self._verify[1].observe(width, seconds.verify, context_length)
            if drafted is not None:
                drafter, num_tokens = drafted
                self._drafts[drafter].observe(num_tokens, seconds.draft, context_length, reading)
