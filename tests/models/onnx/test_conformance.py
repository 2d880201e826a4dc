"""The ONNX engine keeps the promises of the LanguageModel protocol, to the last bit."""

import pytest

from draftwise.models.onnx.engine import OnnxModel
from tests.models.conformance import Backend, LanguageModelConformance


@pytest.fixture
def backend(model: OnnxModel) -> Backend:
    return Backend(f"onnx-{model.precision}", lambda: model, has_trees=False)


class TestConformance(LanguageModelConformance):
    """The suite, in every layout."""
