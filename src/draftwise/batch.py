"""Sequences that are generated together, each at its own pace."""

from collections.abc import Sequence as Tokens
from contextlib import ExitStack, closing
from functools import partial
from typing import Literal, Self

from draftwise.checks import of_kind, whole_number, yes_or_no
from draftwise.control.adaptive import Adaptive
from draftwise.control.base import Controller
from draftwise.control.cost import CostModel
from draftwise.control.fixed import Fixed
from draftwise.control.seeded_apart import SeededApart
from draftwise.drafters.base import Drafter, DraftState
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.several import Several
from draftwise.errors import OptionError, PromptError
from draftwise.loop import begin, step
from draftwise.models.base import LanguageModel, ModelState, refuse_no_target
from draftwise.sequence import Sequence, nobody
from draftwise.types import Step


class Batch:
    """Sequences that are generated together: each joins, goes on and leaves while others are under way.

    A context manager, inside which the caches are open: `num_rows` of them, each for a text of up to
    `max_length` tokens, prompt and output. `drafter`, `num_draft_tokens` and `width_invariant`: as `stream`
    takes them; a controller decides for all rows. With "auto" each row learns for itself how many tokens are
    right, and a pass that rows share is as wide as pays for all of them. But one with a seed reckons as if it
    were alone, so that its tokens do not depend on the others.

    Its tokens, its own options and its seed decide what becomes of a row, and never the other rows: as far as
    logits have the same bits in passes of any width, and unless its drafter learns from finished sequences.
    Raises OptionError for less than one row or token, and what opening target and drafter raises.
    """

    def __init__(
        self,
        target: LanguageModel,
        num_rows: int,
        max_length: int,
        *,
        drafter: Drafter | Tokens[Drafter] | None = None,
        num_draft_tokens: int | Literal["auto"] | Controller | None = "auto",
        width_invariant: bool = True,
    ) -> None:
        refuse_no_target(target)
        whole_number("num_rows", num_rows, least=1)
        whole_number("max_length", max_length, least=1)
        yes_or_no("width_invariant", width_invariant)
        asked = drafter if isinstance(drafter, Tokens) and not isinstance(drafter, str) else [drafter]
        several = Several([each for each in asked if not isinstance(each, NoDrafter | None)])
        if isinstance(num_draft_tokens, str | type) and num_draft_tokens != "auto":
            raise OptionError(f'num_draft_tokens is {num_draft_tokens!r}; give "auto" or a number.')
        if num_draft_tokens is None or (isinstance(num_draft_tokens, str) and not several.drafters):
            num_draft_tokens = several.default_num_draft_tokens
        alone = len(several.drafters) == 1 and isinstance(num_draft_tokens, int)
        self.target = target
        self.max_length = max_length
        self._width_invariant = width_invariant
        self._drafter = several.drafters[0] if alone else several
        self._controller: Controller = (
            SeededApart(
                # Only a row that is alone tells what its pass takes.
                partial(_adaptive, target, several.drafters, num_rows, constant=num_rows > 1),
                partial(_adaptive, target, several.drafters, 1, constant=True),
            )
            if isinstance(num_draft_tokens, str)
            else num_draft_tokens
            if isinstance(num_draft_tokens, Controller)
            else Fixed(num_draft_tokens)
        )
        self._rows = [nobody() for _ in range(num_rows)]
        self._joining: list[list[tuple[int, Sequence]]] = []  # those added together, by their rows
        self._open: tuple[ModelState, DraftState] | None = None
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            num_rows = len(self._rows)
            drafting = self._drafter.open(self.target, num_rows, self.max_length)
            opened.enter_context(closing(drafting))
            cache = self.target.open(
                num_rows, self.max_length, width_invariant=self._width_invariant, taps=drafting.taps
            )
            self._open = opened.enter_context(closing(cache)), drafting
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._open = None
        self._opened.close()

    @property
    def _caches(self) -> tuple[ModelState, DraftState]:
        """Those of target and drafter; raises OptionError outside of the `with` block, which opens them."""
        if self._open is None:
            raise OptionError("this batch is not open; let it step inside of its `with` block.")
        return self._open

    @property
    def free_rows(self) -> tuple[int, ...]:
        """The rows that the next sequences take, in this order."""
        return tuple(row for row, sequence in enumerate(self._rows) if sequence.finish_reason)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return len(self.free_rows) == len(self._rows)

    def add(self, *sequences: Sequence) -> tuple[int, ...]:
        """Give each sequence a free row; the rows, which its steps name until it is finished.

        Several begin with the same prompt, which the target then reads once, in a step of its own that emits
        nothing. Raises OptionError where there are not so many rows free or prompts differ, and for a
        sequence that was added before; PromptError for one that may grow longer than a row.
        """
        for sequence in sequences:
            of_kind("a sequence", sequence, Sequence, "what Request(...).sequence(target) returns")
        rows = self.free_rows[: len(sequences)]
        if len(rows) < len(sequences):
            raise OptionError(
                f"{len(sequences)} sequences do not fit in the {len(rows)} free rows of a batch of "
                f"{len(self._rows)}; wait until others are finished, or open it with more rows."
            )
        new = {*sequences} - {*self._rows}
        if len(new) < len(sequences) or not all(sequence.is_new for sequence in new):
            raise OptionError(
                "a sequence is generated once, in one row; make another one for each row from its Request."
            )
        for sequence in sequences:
            if not sequence.begins_as(sequences[0]):
                raise OptionError("sequences that are added together share one prompt; add these one by one.")
            if sequence.max_length > self.max_length:
                raise PromptError(
                    f"the prompt has {sequence.num_prompt_tokens} tokens and max_new_tokens is "
                    f"{sequence.stop.max_new_tokens}, but a row of this batch holds {self.max_length}; "
                    "shorten the prompt or ask for fewer."
                )
        group = list(zip(rows, sequences, strict=True))
        for row, sequence in group:
            self._rows[row] = sequence
        self._joining.append(group)
        return rows

    def remove(self, row: int) -> None:
        """Free a row whose sequence nobody waits for any longer; raises OptionError where there is none."""
        if whole_number("row", row) not in range(len(self._rows)):
            raise OptionError(f"row is {row}; give one of this batch, from 0 to {len(self._rows) - 1}.")
        self._rows[row] = nobody()

    def step(self) -> list[Step]:
        """Advance every sequence by one target pass; a step for each, and for those whose prompt is read."""
        caches = self._caches
        joining, self._joining = self._joining, []
        read = [done for group in joining for done in self._join(group)]
        return read + step(*caches, self._controller, self._rows)

    def _join(self, group: list[tuple[int, Sequence]]) -> list[Step]:
        """Make rows ready for those of a group that were not removed, and read what several share."""
        rows = [row for row, sequence in group if self._rows[row] is sequence]
        for row in rows:
            self._controller.begin(row, self._rows[row])
        return begin(*self._caches, rows, self._rows[rows[0]]) if rows else []


def _adaptive(target: LanguageModel, drafters: Tokens[Drafter], num_rows: int, *, constant: bool) -> Adaptive:
    """What decides by the costs that are measured here."""
    return Adaptive(CostModel.measured(target, drafters, constant=constant, num_rows=num_rows))
