"""Which slots each new token may attend to: one explicit mask for each kind of attention layer."""

from collections.abc import Mapping

import torch

from draftwise.models.torch.architecture import Horizon
from draftwise.models.torch.feed import Piece


def attention_masks(
    piece: Piece, horizons: Mapping[str, Horizon], device: torch.device, additive: torch.dtype | None
) -> torch.Tensor | dict[str, torch.Tensor]:
    """The masks `[rows, 1, width, view]` of a pass as transformers takes them.

    One mask where all layers are of a kind, else one by kind. `additive`: None gives booleans, true where a
    token may look; a dtype gives what is added to the scores.
    """
    slots = torch.arange(piece.view, device=device)
    slot_positions = slots
    visible = slots < torch.as_tensor(piece.num_seen, device=device)[..., None]
    if piece.overlay:
        visible |= torch.as_tensor(piece.overlay.lineage, device=device)
        slot_positions = torch.as_tensor(piece.overlay.slot_positions, device=device)[:, None]
    positions = torch.as_tensor(piece.positions, device=device)[..., None]
    masks = {}
    for kind, horizon in horizons.items():
        masks[kind] = as_taken((visible & (slot_positions >= horizon(positions)))[:, None], additive)
    return masks if len(masks) > 1 else masks.popitem()[1]


def as_taken(mask: torch.Tensor, additive: torch.dtype | None) -> torch.Tensor:
    """A mask of booleans as it is, or as what is added to the scores."""
    if additive is None:
        return mask
    return torch.zeros_like(mask, dtype=additive).masked_fill(~mask, torch.finfo(additive).min)
