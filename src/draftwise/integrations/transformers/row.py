"""One row of a batch, decoded until a stopping criterion of transformers is met."""

from contextlib import closing
from typing import Literal

import numpy as np
import torch
from transformers.generation.streamers import BaseStreamer

from draftwise.decoding import stream
from draftwise.drafters.base import Drafter
from draftwise.drafters.overheard import Overheard
from draftwise.integrations.transformers.settings import Asked, Place, sampling_of
from draftwise.models.torch import TorchModel
from draftwise.types import Logits, Step


class Row:
    """One sequence of a batch."""

    def __init__(
        self,
        target: TorchModel,
        drafter: Drafter,
        num_draft_tokens: int | Literal["auto"] | None,
        place: Place,
        padded: torch.Tensor,
        asked: Asked,
        streamer: BaseStreamer | None,
    ) -> None:
        """`padded`: the row with its padding."""
        self._drafter = drafter
        self._num_draft_tokens = num_draft_tokens
        self._streamer = streamer
        self._target = target
        self._place = place
        self._ids = padded
        self._asked = asked
        self.scores: list[torch.Tensor] = []
        self.logits: list[torch.Tensor] = []

    def decode(self) -> torch.Tensor:
        """The row with what was generated."""
        config = self._asked.config
        overheard = Overheard(self._drafter) if config.output_scores or config.output_logits else None
        steps = stream(
            self._target,
            self._ids[len(self._place.padding) :].tolist(),
            drafter=overheard or self._drafter,
            num_draft_tokens=self._num_draft_tokens,
            sampling=sampling_of(self._asked, self._place),
            max_new_tokens=config.max_length - len(self._ids),
            ignore_eos=True,  # which is one of the criteria
            # Whoever seeds torch repeats the output.
            seed=int(torch.randint(2**62, ())) if config.do_sample else 0,
        )
        with closing(steps):
            for step in steps:
                if self._take(step, overheard.logits if overheard else None):
                    break
        return self._ids

    def _take(self, step: Step, logits: Logits | None) -> bool:
        """Append the tokens of a step up to the one that meets a stopping criterion; say if one does.

        `logits`: those after the text and after each drafted token, if they are to be kept.
        """
        nodes = [-1, *(range(step.num_accepted) if step.path is None else step.path)]
        for node, token_id in zip(nodes, step.emitted, strict=False):
            if logits is not None:
                raw = torch.from_numpy(logits[node + 1].astype(np.float32)).to(self._ids.device)
                self.logits.append(raw[None])
                self.scores.append(self._place.processed(self._asked.processors, self._ids, raw)[None])
            self._ids = torch.cat([self._ids, self._ids.new_tensor([token_id])])
            if self._streamer is not None:
                self._streamer.put(self._ids[-1:].cpu())
            if self._place.stops(self._asked.criteria, self._ids):
                return True
        return False
