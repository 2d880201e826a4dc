"""Blockwise parallel decoding (Stern, Shazeer, Uszkoreit, 1811.03115): one hidden layer, k outputs."""

import torch
from torch import nn

from draftwise.drafters.growth import Shape
from draftwise.drafters.heads.backbone import Backbone
from draftwise.drafters.heads.checkpoint import Checkpoint
from draftwise.drafters.heads.parallel import ParallelState


class BlockwiseHeads(nn.Module):
    """p_i = softmax(E (h + FFN_i(h))), i from 1 to k, where p_i guesses the token i after h (section 6).

    One feed-forward network has all k outputs, of the model's width each, and E is the target's output layer.
    The target itself takes the place of p_1: what p_1 would guess is known when a draft is made.
    """

    def __init__(self, num_heads: int, width: int, hidden_width: int, output: nn.Module) -> None:
        super().__init__()
        self.ffn = nn.Sequential(
            nn.Linear(width, num_heads * hidden_width),
            nn.ReLU(),
            nn.Linear(num_heads * hidden_width, num_heads * width),
        )
        self.default_num_draft_tokens = num_heads - 1
        self._output = [output]  # not a part of this module

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """As `ParallelHeads`: those of p_2 to p_k."""
        each = self.ffn(hidden).unflatten(-1, (-1, hidden.shape[-1]))
        logits: torch.Tensor = self._output[0](hidden[:, None] + each[:, 1:])
        return logits

    def open(self, num_sequences: int, max_length: int, tree: Shape | None) -> ParallelState:
        """As `Method`."""
        return ParallelState(self, num_sequences, tree)


def load_blockwise(checkpoint: Checkpoint, target: Backbone) -> BlockwiseHeads:
    """`blockwise_num_heads` (k) and `blockwise_hidden_size` in the config; `ffn.0`, `ffn.2` in the file."""
    num_heads = checkpoint.integer("blockwise_num_heads", at_least=2)
    hidden_width = checkpoint.integer("blockwise_hidden_size")
    width = checkpoint.hidden_size_of(target)
    return checkpoint.fill(
        lambda: BlockwiseHeads(num_heads, width, hidden_width, target.output), checkpoint.tensors(), target
    )
