"""Several drafters at once: at each step, and for each row, the limit chooses which of them drafts."""

from collections.abc import Sequence
from itertools import chain

from draftwise.control.base import Limit, UpTo
from draftwise.drafters.base import Drafter, DraftState, refuse_no_drafter
from draftwise.models.base import LanguageModel, Tap
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.types import Draft, Source, Step


class Several:
    """Takes each draft from one of its drafters; give those that cost least first.

    Several within are as if their drafters were given, so that one choice is made among all.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        for drafter in drafters:
            refuse_no_drafter(drafter)
        within = [each.drafters if isinstance(each, Several) else (each,) for each in drafters]
        self.drafters: tuple[Drafter, ...] = tuple(chain.from_iterable(within))
        self.name = " + ".join(drafter.name for drafter in drafters)
        self.default_num_draft_tokens = max(
            (drafter.default_num_draft_tokens for drafter in drafters), default=0
        )

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "SeveralStates":
        """Start all of them; raises what any of them raises, after closing those that were open."""
        states: list[DraftState] = []
        try:
            for drafter in self.drafters:
                states.append(drafter.open(target, num_sequences, max_length))
        except BaseException:
            SeveralStates(states).close()
            raise
        return SeveralStates(states)


class SeveralStates:
    """The state of each drafter. One that is not chosen catches up when it next is."""

    def __init__(self, states: Sequence[DraftState]) -> None:
        self._states = states
        self.taps: Sequence[Tap] = [tap for state in states for tap in state.taps]

    def begin(self, row: int, source: Source | None) -> None:
        for state in self._states:
            state.begin(row, source)

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        """That of the first drafter with a guess."""
        known = (state.confidence(row, context) for state in self._states)
        return next((confidence for confidence in known if confidence != 0), 0.0)

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        chosen = [
            limit.choose([state.confidence(row, context) for state in self._states])
            if limit.allows(0)
            else None
            for row, (context, limit) in enumerate(zip(contexts, limits, strict=True))
        ]
        drafts = [Draft()] * len(contexts)
        for index in sorted({choice for choice in chosen if choice is not None}):
            own = [
                limit if index == choice else UpTo(0) for limit, choice in zip(limits, chosen, strict=True)
            ]
            proposed = self._states[index].propose(contexts, own, samplers, randomness)
            for row, choice in enumerate(chosen):
                if choice == index:
                    drafts[row] = proposed[row]
        return drafts

    def observe(self, step: Step) -> None:
        for state in self._states:
            state.observe(step)

    def close(self) -> None:
        for state in self._states:
            state.close()
