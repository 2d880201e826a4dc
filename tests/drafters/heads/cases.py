"""Heads for the suite that every drafter runs: random checkpoints, each loaded for tiny targets."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from draftwise.drafters.growth import DynamicTree, Shape, StaticTree
from draftwise.drafters.heads import load_heads
from draftwise.drafters.heads.drafter import Heads
from draftwise.models.torch import TorchModel
from draftwise.types import Logits
from tests.drafters.case import Case
from tests.drafters.heads import published
from tests.drafters.heads.published import METHODS
from tests.drafters.heads.statements import Weights, stated_logits

DRAWN = ("eagle", "eagle3", "dflash")  # the others draft the likeliest tokens
SHARPENED = {  # so that guesses differ much from what the target says
    "eagle": "layers.0.mlp.down_proj.weight",
    "eagle3": "norm.weight",
    "dflash": "norm.weight",
}


def _target(vocab_size: int, num_layers: int) -> TorchModel:
    with torch.no_grad():
        model = published.target(vocab_size, seed=8, num_hidden_layers=num_layers)
        model.lm_head.weight *= 0.3  # any token may follow
    return TorchModel(model, name=f"target-of-{vocab_size}")


# The second has a token that EAGLE-3's heads never say. Only some methods look into a target's layers.
DEEP, SHALLOW = (
    [_target(vocab_size, num_layers) for vocab_size in (4, 6)] for num_layers in (published.NUM_LAYERS, 1)
)


def heads(method: str, tree: Shape | None = None) -> Case:
    targets = DEEP if method in ("eagle3", "dflash") else SHALLOW

    @cache
    def made(vocab_size: int) -> tuple[dict[str, object], Weights]:
        config, weights = METHODS[method](vocab_size)
        if method in SHARPENED:
            weights[SHARPENED[method]] *= 8
        return config, weights

    @cache
    def make(target: TorchModel) -> Heads:
        with TemporaryDirectory() as folder:
            return load_heads(
                published.save(Path(folder), method, *made(target.vocab_size)), target, tree=tree
            )

    @torch.inference_mode()
    def says(target: TorchModel, context: Sequence[int], drafted: Sequence[int]) -> Logits:
        _, weights = made(target.vocab_size)
        stated: Logits = stated_logits(method, weights, target.model, context, [*drafted, 0])[-1].numpy()
        return stated

    name = f"{method}-tree" if tree else method
    return Case(name, make, targets, says if method in DRAWN and not tree else None, 3e-4, is_exact=False)


HEADS = [
    *map(heads, METHODS),
    heads("medusa", StaticTree.choices([(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)])),
    heads("eagle", DynamicTree(6, width=2, depth=3)),  # EAGLE-2
    heads("dflash", StaticTree.branching(2, 1, 1)),
]
