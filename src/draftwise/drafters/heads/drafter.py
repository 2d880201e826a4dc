"""Heads as a drafter: what all methods have in common."""

from typing import Protocol

import torch

from draftwise.drafters.base import DraftState
from draftwise.drafters.growth import Shape
from draftwise.errors import OptionError
from draftwise.models.base import LanguageModel, refuse_no_trees
from draftwise.types import Logits


class Method(Protocol):
    """Loaded heads of one method."""

    default_num_draft_tokens: int

    def open(self, num_sequences: int, max_length: int, tree: Shape | None) -> DraftState:
        """Start drafting for the target that they were loaded for; without a tree, chains."""
        ...


class Heads:
    """Heads that were loaded for one target, whose embeddings and output layer they share.

    `tree`: how their trees of guesses grow; None drafts chains.
    """

    def __init__(self, name: str, method: Method, target: LanguageModel, tree: Shape | None = None) -> None:
        self.name = name
        self.method = method
        self.target = target
        self.tree = tree
        self.default_num_draft_tokens = tree.num_draft_tokens if tree else method.default_num_draft_tokens

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> DraftState:
        """Start drafting; raises OptionError for another target than they were loaded for.

        Raises UnsupportedError where trees are wanted of a target that cannot score them.
        """
        if target is not self.target:
            raise OptionError(
                f"{self.name} was loaded for {self.target.name} and cannot draft for {target.name}; load the "
                "heads again for that target."
            )
        if self.tree:
            refuse_no_trees(target)
        return self.method.open(num_sequences, max_length, self.tree)


def on_host(logits: torch.Tensor) -> Logits:
    """Logits as numpy, in float32 or wider."""
    array: Logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).cpu().numpy()
    return array
