"""Which method a checkpoint of heads is of, by its config, and how it is loaded."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from draftwise.drafters.growth import Shape
from draftwise.drafters.heads.blockwise import load_blockwise
from draftwise.drafters.heads.checkpoint import Checkpoint
from draftwise.drafters.heads.dflash import load_dflash
from draftwise.drafters.heads.drafter import Heads, Method
from draftwise.drafters.heads.eagle import load_eagle
from draftwise.drafters.heads.eagle3 import load_eagle3
from draftwise.drafters.heads.medusa import load_medusa
from draftwise.errors import ModelError, UnsupportedError
from draftwise.models.base import LanguageModel
from draftwise.models.sources import find_heads
from draftwise.models.torch import TorchModel
from draftwise.progress import Progress, shown

# By the key of a config that only this method has, in the order in which they are looked for.
_METHODS: Mapping[str, tuple[str, Callable[[Checkpoint, TorchModel], Method]]] = {
    "blockwise_num_heads": ("blockwise", load_blockwise),
    "medusa_num_heads": ("medusa", load_medusa),
    "dflash_config": ("dflash", load_dflash),
    "draft_vocab_size": ("eagle3", load_eagle3),
    "num_hidden_layers": ("eagle", load_eagle),  # a plain Llama config
}


def load(
    source: str | Path, target: LanguageModel, tree: Shape | None = None, progress: Progress | None = None
) -> Heads:
    """As `draftwise.load_heads`."""
    if not isinstance(target, TorchModel):
        raise UnsupportedError(
            f"{target.name} hands out no hidden states, which heads read; load it with the torch engine."
        )
    with shown(progress) as report:
        folder = find_heads(source, report)
        report(f"loading {source}", 0.0)
        checkpoint = Checkpoint(str(source), folder)
        name, load_method = method_of(checkpoint.name, checkpoint.config)
        method = load_method(checkpoint, target)
        report(f"loading {source}", 1.0)
    return Heads(f"{name} {source}", method, target, tree)


def method_of(name: str, config: Mapping[str, Any]) -> tuple[str, Callable[[Checkpoint, TorchModel], Method]]:
    """The method that a config is of; raises ModelError where it is none that can be loaded."""
    kind = config.get("speculators_model_type") or config.get("projector_type")
    if kind:
        raise ModelError(
            f"{name} is in a format ({kind}) that is not read; docs/heads.md lists those that are."
        )
    for key, method in _METHODS.items():
        if key in config:
            return method
    raise ModelError(
        f"the config of {name} has none of the keys that tell the kind of heads ({', '.join(_METHODS)}); "
        "docs/heads.md says what each kind looks like."
    )
