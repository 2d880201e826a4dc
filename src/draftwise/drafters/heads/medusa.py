"""Medusa (2401.10774): each head guesses one more position from the last hidden state."""

import torch
from torch import nn

from draftwise.drafters.growth import Shape
from draftwise.drafters.heads.backbone import Backbone
from draftwise.drafters.heads.checkpoint import Checkpoint
from draftwise.drafters.heads.parallel import ParallelState


class ResidualBlock(nn.Module):
    """x + SiLU(W x + b)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + nn.functional.silu(self.linear(hidden))


class MedusaHeads(nn.ModuleList):
    """p_k = softmax(W2_k (SiLU(W1_k h + b_k) + h)): head k, from 1, guesses the token k + 1 after h."""

    def __init__(self, num_heads: int, num_layers: int, width: int, vocab_size: int) -> None:
        super().__init__(
            nn.Sequential(
                *(ResidualBlock(width) for _ in range(num_layers)), nn.Linear(width, vocab_size, bias=False)
            )
            for _ in range(num_heads)
        )
        self.default_num_draft_tokens = num_heads

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """As `ParallelHeads`."""
        return torch.stack([head(hidden) for head in self], dim=1)

    def open(self, num_sequences: int, max_length: int, tree: Shape | None) -> ParallelState:
        """As `Method`."""
        return ParallelState(self, num_sequences, tree)


def load_medusa(checkpoint: Checkpoint, target: Backbone) -> MedusaHeads:
    """Medusa-1 heads, or those that a Medusa-2 model carries as `medusa_head`.

    The file counts the heads: the published configs say 2 where there are 5.
    """
    tensors = checkpoint.tensors("medusa_head.") or checkpoint.tensors()
    num_heads = len({number for key in tensors if (number := key.partition(".")[0]).isdigit()})
    num_layers = checkpoint.integer("medusa_num_layers", 1)
    width = checkpoint.hidden_size_of(target)
    return checkpoint.fill(
        lambda: MedusaHeads(num_heads, num_layers, width, target.vocab_size), tensors, target
    )
