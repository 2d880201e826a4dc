"""Drafters that read the target's hidden states; `load_heads` loads their published checkpoints."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from draftwise.errors import ModelError
from draftwise.models.base import LanguageModel
from draftwise.progress import Progress

if TYPE_CHECKING:
    from draftwise.drafters.growth import Shape, StaticTree
    from draftwise.drafters.heads.drafter import Heads


def load_heads(
    source: str | Path,
    target: LanguageModel,
    *,
    tree: "Shape | None" = None,
    progress: Progress | None = None,
) -> "Heads":
    """Load heads that were trained for a target, as a drafter for it.

    `source`: a folder or a hub id with the checkpoint of blockwise parallel decoding, Medusa, EAGLE, EAGLE-3
    or DFlash heads, which its config tells apart. `target`: on the torch engine, whose device and dtype they
    take, or on the onnx engine, converted with the hidden states that they read (`layers_read`). `tree`: how
    a tree of likely guesses grows, such as `DynamicTree(60, width=10, depth=6)`, which is EAGLE-2's; None
    drafts a chain. Raises ModelError for a checkpoint that cannot be read or does not fit the target, and
    UnsupportedError for a target that hands out no hidden states.
    """
    heads: Heads = _loading().load(source, target, tree, progress)
    return heads


def layers_read(source: str | Path, *, progress: Progress | None = None) -> Callable[[int], tuple[int, ...]]:
    """The hidden states that heads read of a target of so many layers, as `load` takes them.

    `source`: as for `load_heads`. `load(model, hidden_states=layers_read(source))` loads a target for them.
    Raises ModelError for a checkpoint that cannot be read.
    """
    layers: Callable[[int], tuple[int, ...]] = _loading().layers_read(source, progress)
    return layers


def calibrated_tree(
    heads: "Heads", texts: Sequence[Sequence[int]], num_draft_tokens: int = 63
) -> "StaticTree":
    """The static tree of which most guesses of blockwise or Medusa heads are accepted (2401.10774, 2.3.3).

    `texts`: token ids, best of the target's own output, on which it is measured how often each guess is
    right. Load the heads again with this tree. Raises as `calibration.head_accuracies`.
    """
    from draftwise.drafters.growth import StaticTree
    from draftwise.drafters.heads.calibration import head_accuracies

    return StaticTree.calibrated(head_accuracies(heads, texts).tolist(), num_draft_tokens)


def _loading() -> ModuleType:
    try:
        from draftwise.drafters.heads import loading
    except ModuleNotFoundError as error:
        raise ModelError(
            f"heads need {error.name}, which is not installed: pip install 'draftwise[torch]'."
        ) from None
    return loading
