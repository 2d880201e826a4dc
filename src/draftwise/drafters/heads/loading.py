"""Which method a checkpoint of heads is of, by its config, and how it is loaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from draftwise.drafters.growth import Shape
from draftwise.drafters.heads.backbone import Backbone
from draftwise.drafters.heads.blockwise import load_blockwise
from draftwise.drafters.heads.checkpoint import Checkpoint
from draftwise.drafters.heads.dflash import context_layers, load_dflash
from draftwise.drafters.heads.drafter import Heads, Method
from draftwise.drafters.heads.eagle import load_eagle
from draftwise.drafters.heads.eagle3 import fused_layers, load_eagle3
from draftwise.drafters.heads.medusa import load_medusa
from draftwise.drafters.heads.parallel import FINAL
from draftwise.errors import ModelError
from draftwise.models.base import LanguageModel
from draftwise.models.sources import find_heads
from draftwise.progress import Progress, shown


def _last(checkpoint: Checkpoint, num_layers: int) -> tuple[int, ...]:
    return (FINAL,)


@dataclass(frozen=True, slots=True)
class Kind:
    """A method, and how a checkpoint of it is read.

    `layers_read`: the hidden states that it reads of a target of so many layers, as `Tap.layers`.
    """

    name: str
    load: Callable[[Checkpoint, Backbone], Method]
    layers_read: Callable[[Checkpoint, int], tuple[int, ...]] = _last


# By the key of a config that only this method has, in the order in which they are looked for.
_KINDS: Mapping[str, Kind] = {
    "blockwise_num_heads": Kind("blockwise", load_blockwise),
    "medusa_num_heads": Kind("medusa", load_medusa),
    "dflash_config": Kind("dflash", load_dflash, context_layers),
    "draft_vocab_size": Kind("eagle3", load_eagle3, fused_layers),
    "num_hidden_layers": Kind("eagle", load_eagle),  # a plain Llama config
}


def load(
    source: str | Path, target: LanguageModel, tree: Shape | None = None, progress: Progress | None = None
) -> Heads:
    """As `draftwise.load_heads`."""
    backbone = Backbone.of(target)
    with shown(progress) as report:
        checkpoint = _checkpoint(source, report)
        report(f"loading {source}", 0.0)
        kind = _kind_of(checkpoint)
        method = kind.load(checkpoint, backbone)
        report(f"loading {source}", 1.0)
    return Heads(f"{kind.name} {source}", method, target, tree)


def layers_read(source: str | Path, progress: Progress | None = None) -> Callable[[int], tuple[int, ...]]:
    """As `draftwise.layers_read`."""
    with shown(progress) as report:
        checkpoint = _checkpoint(source, report)
    kind = _kind_of(checkpoint)
    return lambda num_layers: kind.layers_read(checkpoint, num_layers)


def _checkpoint(source: str | Path, progress: Progress) -> Checkpoint:
    return Checkpoint(str(source), find_heads(source, progress))


def _kind_of(checkpoint: Checkpoint) -> Kind:
    """The kind that a config is of; raises ModelError where it is none that can be loaded."""
    name, config = checkpoint.name, checkpoint.config
    other = config.get("speculators_model_type") or config.get("projector_type")
    if other:
        raise ModelError(
            f"{name} is in a format ({other}) that is not read; docs/heads.md lists those that are."
        )
    for key, kind in _KINDS.items():
        if key in config:
            return kind
    raise ModelError(
        f"the config of {name} has none of the keys that tell the kind of heads ({', '.join(_KINDS)}); "
        "docs/heads.md says what each kind looks like."
    )
