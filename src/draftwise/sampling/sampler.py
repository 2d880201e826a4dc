"""What the next token of a sequence is drawn from, given all the tokens before it, drafted ones included."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, overload

import numpy as np

from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel
from draftwise.sampling.controls import controls_of
from draftwise.sampling.distribution import adjusted_probs
from draftwise.sampling.params import SamplingParams
from draftwise.types import Control, Draft, Logits, Probs, TokenIds

if TYPE_CHECKING:
    from draftwise.sampling.grammar import GrammarControl


@dataclass(frozen=True, slots=True, eq=False)
class Sampler:
    """How the token after some text is drawn: a value, and each token leads to another one.

    `controls` see `token_ids`, all the text so far, and change the logits `[vocab_size]` in their order;
    temperature and filters follow. They are the same functions at every position of a draft, so that no
    control can tell a draft from text, and none has to go back after a rejection. Without controls the text
    makes no difference, and is not kept. Guesses that follow a token which ends the text are never emitted,
    and no control is asked about them: plain decoding would not, and it may have no answer.
    """

    params: SamplingParams
    controls: tuple[Control, ...] = ()
    vocab_size: int = 0  # the target's, which controls count on
    grammar: "GrammarControl | None" = None  # one of the controls
    token_ids: TokenIds = field(default_factory=lambda: np.empty(0, np.int64))
    end_token_ids: frozenset[int] = frozenset()  # what ends the text
    has_ended: bool = False

    @classmethod
    def start(
        cls,
        params: SamplingParams,
        prompt: Sequence[int],
        target: LanguageModel,
        eos_token_ids: Collection[int] | None = None,
        stop_token_ids: Collection[int] = (),
    ) -> "Sampler":
        """How the token after a prompt is drawn; raises OptionError for what the target cannot follow.

        `eos_token_ids`, `stop_token_ids`: what ends the sequence; None takes the target's eos, for a text
        that may go on after it.
        """
        ends = frozenset((*(eos_token_ids or ()), *stop_token_ids))
        eos_token_ids = target.eos_token_ids if eos_token_ids is None else eos_token_ids
        controls = list(controls_of(params, len(prompt), target, eos_token_ids, stop_token_ids))
        grammar = None
        if params.grammar:
            grammar = params.grammar.control(len(prompt), target, eos_token_ids)
            controls.append(grammar)
        begun = cls(params, tuple(controls), target.vocab_size, grammar).after(prompt)
        return replace(begun, end_token_ids=ends)

    def after(self, token_ids: Sequence[int]) -> "Sampler":
        """How the token is drawn that follows this text and `token_ids`."""
        if not (self.controls and token_ids):
            return self
        return replace(
            self,
            token_ids=np.concatenate([self.token_ids, np.array(token_ids, np.int64)]),
            has_ended=self.has_ended or not self.end_token_ids.isdisjoint(token_ids),
        )

    def fit(self, draft: Draft, allows: Callable[[int, float], bool]) -> Draft:
        """A deterministic draft without guesses that the grammar forbids, and with those that it forces.

        The first need no pass to be rejected, and the second are certain: they follow a chain as far as
        `allows`, asked as a `Limit`, lets them. A draft of drawn tokens stays as it is: none of them must be
        left out for its value.
        """
        grammar = self.grammar
        if grammar is None or draft.probs is not None:
            return draft
        draft = draft.only(lambda index: grammar.allows(self.token_ids, draft.path_to(index)))
        if draft.parents is not None:
            return draft
        forced = enumerate(grammar.forced(self.after(draft.token_ids).token_ids), len(draft))
        allowed = takewhile(lambda at: at[1] < self.vocab_size and allows(at[0], 1.0), forced)
        return Draft((*draft.token_ids, *(token_id for _, token_id in allowed)))

    def greedy(self) -> "Sampler":
        """The same controls, and then the likeliest token."""
        return replace(self, params=replace(self.params, temperature=0.0))

    def controlled(self, logits: Logits) -> Logits:
        """What the controls make of logits `[vocabulary]`, in their dtype; -inf bans a token.

        The target's, or those of a draft model that knows fewer tokens: the others are banned.
        """
        if not self.controls:
            return logits
        changed = np.full(self.vocab_size, -np.inf, logits.dtype)
        changed[: len(logits)] = logits
        for control in () if self.has_ended else self.controls:
            changed = control(self.token_ids, changed)
        return changed

    def probs(self, logits: Logits) -> Probs:
        """The distribution `[vocabulary]` that the next token is sampled from.

        Raises OptionError where the controls leave no token or no number, and as `adjusted_probs` does.
        """
        scores = self.controlled(logits)
        if self.controls and not np.isfinite(largest := scores.max()) and np.isfinite(logits.max()):
            if largest == -np.inf:
                raise OptionError(
                    "banned, min_new_tokens, processors and grammar leave no token that may follow the first "
                    f"{len(self.token_ids)}; let them allow one."
                )
            raise OptionError(
                f"a processor returned a logit of {largest}; let it return numbers, -inf to ban."
            )
        return adjusted_probs(scores, self.params)


class Distributions(Sequence[Probs]):
    """The adjusted distributions after a text and after each token of a draft, computed when first asked for.

    `logits`: `[len(draft) + 1, vocabulary]`. Positions after a rejection are never asked for, and cost
    nothing.
    """

    def __init__(self, logits: Logits, sampler: Sampler, draft: Draft) -> None:
        self._logits = logits
        self._sampler = sampler
        self._draft = draft
        self._probs: dict[int, Probs] = {}

    def __len__(self) -> int:
        return len(self._logits)

    @overload
    def __getitem__(self, index: int) -> Probs: ...

    @overload
    def __getitem__(self, index: slice) -> list[Probs]: ...

    def __getitem__(self, index: int | slice) -> Probs | list[Probs]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        if position not in self._probs:
            sampler = self._sampler.after(self._draft.path_to(position - 1))
            self._probs[position] = sampler.probs(self._logits[position])
        return self._probs[position]
