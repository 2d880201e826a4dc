"""The rows of a batch, decoded together, each until a stopping criterion of transformers is met."""

from collections.abc import Sequence as Tokens
from typing import Literal

import numpy as np
import torch
from transformers.generation.streamers import BaseStreamer

from draftwise.batch import Batch
from draftwise.drafters.base import Drafter
from draftwise.drafters.overheard import Overheard
from draftwise.integrations.transformers.settings import Asked, Place, sampling_of
from draftwise.models.torch import TorchModel
from draftwise.request import Request
from draftwise.sequence import Sequence
from draftwise.types import Logits, Step


def decode(
    target: TorchModel,
    drafter: Drafter,
    num_draft_tokens: int | Literal["auto"] | None,
    rows: Tokens["Row"],
    *,
    keeps_logits: bool,
) -> None:
    """Let each of the rows grow to its end; `keeps_logits` is for a row that is alone."""
    overheard = Overheard(drafter) if keeps_logits else None
    sequences = [row.sequence(target) for row in rows]
    with Batch(
        target,
        len(rows),
        max(sequence.max_length for sequence in sequences),
        drafter=overheard or drafter,
        num_draft_tokens=num_draft_tokens,
    ) as batch:
        for sequence in sequences:
            batch.add(sequence)
        while not batch.is_idle:
            for step in batch.step():
                if rows[step.row].take(step, overheard.logits if overheard else None):
                    batch.remove(step.row)


class Row:
    """One sequence of a batch."""

    def __init__(
        self, place: Place, padded: torch.Tensor, asked: Asked, streamer: BaseStreamer | None
    ) -> None:
        """`padded`: the row with its padding."""
        self.ids = padded  # with what was generated
        self.scores: list[torch.Tensor] = []
        self.logits: list[torch.Tensor] = []
        self._streamer = streamer
        self._place = place
        self._asked = asked

    def sequence(self, target: TorchModel) -> Sequence:
        """What is to be generated, at its start."""
        config = self._asked.config
        return Request(
            self.ids[len(self._place.padding) :].tolist(),
            sampling=sampling_of(self._asked, self._place),
            max_new_tokens=config.max_length - len(self.ids),
            ignore_eos=True,  # the model's; what ends this text is among the criteria
            stop_token_ids=[
                token_id for token_id in self._asked.end_token_ids if 0 <= token_id < target.vocab_size
            ],
            # Whoever seeds torch repeats the output.
            seed=int(torch.randint(2**62, ())) if config.do_sample else None,
        ).sequence(target)

    def take(self, step: Step, logits: Logits | None) -> bool:
        """Append the tokens of a step up to the one that meets a stopping criterion; say if one does.

        `logits`: those after the text and after each drafted token, if they are to be kept.
        """
        nodes = [-1, *(range(step.num_accepted) if step.path is None else step.path)]
        for node, token_id in zip(nodes, step.emitted, strict=False):
            if logits is not None:
                raw = torch.from_numpy(logits[node + 1].astype(np.float32)).to(self.ids.device)
                self.logits.append(raw[None])
                self.scores.append(self._place.processed(self._asked.processors, self.ids, raw)[None])
            self.ids = torch.cat([self.ids, self.ids.new_tensor([token_id])])
            if self._streamer is not None:
                self._streamer.put(self.ids[-1:].cpu())
            if self._place.stops(self._asked.criteria, self.ids):
                return True
        return False
