"""Every backend keeps the promises of the LanguageModel protocol."""

import pytest
import torch
from transformers import PreTrainedModel

from draftwise.drafters.translation.model import TranslatedModel
from draftwise.models.tabular import TabularModel
from draftwise.models.torch import EncoderDecoderModel, RecurrentModel, TorchModel
from tests.fakes import byte_pairs
from tests.models import tiny
from tests.models.conformance import Backend, LanguageModelConformance
from tests.models.tiny import one_thread  # noqa: F401
from tests.models.tiny_recurrent import RECURRENT
from tests.models.tiny_seq2seq import ENCODER_DECODERS, SOURCES


def _torch(architecture: str, dtype: torch.dtype, tolerance: float) -> Backend:
    def make() -> TorchModel:
        model: PreTrainedModel = tiny.ARCHITECTURES[architecture](dtype=dtype)
        return TorchModel(model)

    return Backend(f"torch-{architecture}-{dtype}".replace("torch.", ""), make, tolerance)


def translated() -> TranslatedModel:
    """Three tokens of the target's are tokens of the model's, one is two of them, and one is none."""
    model = TabularModel.random(6, 3, seed=0, tokenizer=byte_pairs("c", "b", "a", "cc", "ba", "Ġ"))
    target = TabularModel.random(5, tokenizer=byte_pairs("a", "b", "ab", "d", "Ġ"))
    return TranslatedModel(model, target)


def _torch_recurrent(architecture: str, tolerance: float) -> Backend:
    def make() -> RecurrentModel:
        return RecurrentModel(RECURRENT[architecture]())

    return Backend(f"torch-{architecture}", make, tolerance, has_trees=False)


def _torch_seq2seq(architecture: str, dtype: torch.dtype, tolerance: float) -> Backend:
    def make() -> EncoderDecoderModel:
        return EncoderDecoderModel(ENCODER_DECODERS[architecture](dtype=dtype))

    name = f"torch-{architecture}-{dtype}".replace("torch.", "")
    return Backend(name, make, tolerance, source=SOURCES[0])


BACKENDS = [
    Backend("tabular", lambda: TabularModel.random(5, 3, seed=0)),
    Backend("translated", translated),
    # Two that stay in float64; the others take norms or scores in float32 whatever their weights are in.
    _torch("gpt2", torch.float64, 1e-12),
    _torch("starcoder2", torch.float64, 1e-12),
    _torch("llama", torch.float32, 3e-5),
    _torch("gemma2", torch.float32, 3e-5),
    _torch("llama4", torch.float32, 3e-5),
    _torch_seq2seq("bart", torch.float64, 1e-11),
    _torch_seq2seq("t5-gated", torch.float32, 3e-4),
    _torch_recurrent("mamba2", 1e-4),
    _torch_recurrent("qwen3_next", 1e-4),
]


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


class TestConformance(LanguageModelConformance):
    """The suite, for each of them."""
