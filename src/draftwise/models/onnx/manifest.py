"""What a converted folder says of itself."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

MANIFEST = "draftwise.json"
NUM_LOGITS = "num_logits"  # the graph input that says how many last positions get logits
SHARED_WEIGHTS = "shared.safetensors"  # what heads share with the model, if it was converted for heads


def hidden_state_name(number: int, num_layers: int) -> str:
    """The graph output with a hidden state, by the number that `models.base.Tap` gives it.

    What comes after all layers is the last one: there is nothing between them and the last norm.
    """
    return f"hidden_state.{'last' if number in (-1, num_layers) else number}"


class Layout(StrEnum):
    """How the weights of the matrix products are stored."""

    FLOAT32 = "float32"
    # A scale for every block of weights down a column and of activations along a row: MatMulNBits.
    BLOCKWISE = "int8-blockwise"
    # One scale for each output column and each row of activations: an integer matrix product.
    ROWWISE = "int8-rowwise"
    # As blocks, in half the bits: half the reading, and a loss that only a draft model can afford.
    INT4 = "int4"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the engine must know of a converted model, and what the conversion lost (nats for each token).

    `only_drafts`: whether it was left but some of its tokens.
    """

    name: str
    layout: Layout
    vocab_size: int
    max_length: int
    head_size: int
    float_nll: float
    nll: float
    only_drafts: bool = False

    @property
    def loss(self) -> float:
        return self.nll - self.float_nll

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Raises OSError or ValueError where the folder holds no readable manifest."""
        fields = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        try:
            return cls(**{**fields, "layout": Layout(fields["layout"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"{MANIFEST} is of another version ({error})") from None

    def write(self, folder: Path) -> None:
        (folder / MANIFEST).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
