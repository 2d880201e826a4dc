"""The target's hidden states of the tokens that stayed in each row's text, until a head reads them."""

from collections.abc import Sequence

import torch

from draftwise.models.base import Tap
from draftwise.types import Step


class Features:
    """Collects, step by step, what a tap heard of accepted tokens; the rejected ones are left out.

    The features of a token are the hidden states of the tapped layers, one after the other.
    """

    def __init__(self, layers: tuple[int, ...], num_sequences: int) -> None:
        self.tap = Tap(layers)
        self._read = [0] * num_sequences
        self._unread: list[list[torch.Tensor]] = [[] for _ in range(num_sequences)]

    def begin(self, row: int) -> None:
        """Forget the text that the row held."""
        self._read[row] = 0
        self._unread[row].clear()

    def observe(self, step: Step) -> None:
        """Take over what was heard of the pass of this step."""
        fed = torch.cat([torch.as_tensor(states) for states in self.tap.rows[step.row]], dim=-1)
        num_text = step.num_fed - len(step.drafted)
        path = range(step.num_accepted) if step.path is None else step.path
        accepted = path[: len(step.emitted) - 1]
        kept = torch.tensor([*range(num_text), *(num_text + index for index in accepted)], device=fed.device)
        self._unread[step.row].append(fed[kept])

    def num_read(self, row: int) -> int:
        """How many tokens' features were taken before."""
        return self._read[row]

    def are_there(self, row: int, context: Sequence[int]) -> bool:
        """Whether there are new ones, up to the last token but one: the target has not read the last."""
        unread = sum(map(len, self._unread[row]))
        return 0 < unread == len(context) - 1 - self._read[row]

    def take(self, row: int) -> torch.Tensor:
        """The features `[tokens, width]` not taken before, which are there."""
        taken = torch.cat(self._unread[row])
        self._unread[row].clear()
        self._read[row] += len(taken)
        return taken
