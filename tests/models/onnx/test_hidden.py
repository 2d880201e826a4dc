"""Hidden states out of converted models, and heads that read them there."""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from draftwise.decoding import generate
from draftwise.drafters.growth import DynamicTree
from draftwise.drafters.heads import layers_read, load_heads
from draftwise.drafters.heads.backbone import Backbone
from draftwise.errors import OptionError, UnsupportedError
from draftwise.models.base import Tap
from draftwise.models.onnx.convert import convert
from draftwise.models.onnx.engine import PIECE, OnnxModel, load_onnx
from draftwise.models.onnx.hidden import expose
from draftwise.models.onnx.probe import width_invariant
from draftwise.models.torch import TorchModel
from draftwise.sampling import SamplingParams
from tests.drafters.heads import published
from tests.drafters.heads.published import METHODS
from tests.drafters.heads.training import trained
from tests.models.onnx.conftest import VOCAB_SIZE

Exposed = Callable[[str], OnnxModel]
LAYERS = tuple(range(published.NUM_LAYERS + 1))
TEXT = [(31 * position + position * position) % VOCAB_SIZE for position in range(PIECE + 70)]
MODELS = ("llama", "tied-qwen3")


@pytest.fixture(scope="session")
def folders(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Transformers folders; the tiny Llama is deep enough for every kind of heads."""
    made = {name: tmp_path_factory.mktemp("hidden") / name for name in ("llama", "tied-qwen3")}
    options = {"head_dim": 16, "max_position_embeddings": PIECE + 100, "eos_token_id": VOCAB_SIZE - 2}
    published.target(VOCAB_SIZE, **options).save_pretrained(made["llama"])
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        initializer_range=0.2,
        **options,
    )
    Qwen3ForCausalLM(config).save_pretrained(made["tied-qwen3"])
    for folder in made.values():
        for file in source.glob("tokenizer*"):
            (folder / file.name).write_bytes(file.read_bytes())
    return made


@pytest.fixture(scope="session")
def exposed(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Exposed:
    """A model converted with all its hidden states, by name."""

    @cache
    def get(name: str) -> OnnxModel:
        out = tmp_path_factory.mktemp("exposed") / name
        layers = LAYERS if name == "llama" else (0, 1, 2)
        convert(folders[name], out, precision="fp32", progress=silent, hidden_states=layers)
        return load_onnx(out)

    return get


def silent(stage: str, fraction: float) -> None:
    pass


def stated(folder: Path, tokens: Sequence[int]) -> list[np.ndarray]:
    """What transformers says that the hidden states are."""
    with torch.inference_mode():
        output = AutoModelForCausalLM.from_pretrained(folder)(
            torch.tensor([list(tokens)]), output_hidden_states=True
        )
    return [states[0].numpy() for states in output.hidden_states]


@pytest.mark.parametrize("name", MODELS)
def test_hidden_states_are_those_of_transformers(
    name: str, exposed: Exposed, folders: dict[str, Path]
) -> None:
    """Of exactly the tokens that were fed, in whatever pieces and beside whatever padding."""
    model = exposed(name)
    expected = stated(folders[name], TEXT)
    tap = Tap(tuple(range(len(expected))))
    with closing(model.open(2, len(TEXT), taps=[tap])) as state:
        assert tap.state is state
        heard: list[list[np.ndarray]] = []
        for end in (1, 18, 19, 19 + PIECE + 1, len(TEXT)):  # with a lone position that another stands beside
            begin = state.lengths[0]
            state.forward([TEXT[begin:end], TEXT[:3] if end == 18 else []], [1, 0])
            assert [len(states) for states in tap.rows[0]] == [end - begin] * len(expected)
            assert {len(states) for states in tap.rows[1]} == {3 if end == 18 else 0}
            heard.append([np.array(states) for states in tap.rows[0]])
        state.keep(0, 7)
        state.forward([TEXT[7:9], []], [2, 0])
        again = [np.array(states) for states in tap.rows[0]]
    for number, states in enumerate(expected):
        whole = np.concatenate([pieces[number] for pieces in heard])
        spread = states.std()
        np.testing.assert_allclose(whole, states, rtol=0, atol=1e-4 * spread)
        np.testing.assert_allclose(again[number], states[7:9], rtol=0, atol=1e-4 * spread)


def test_hidden_states_change_no_logit(exposed: Exposed) -> None:
    """And the model is as width-invariant as it is without them."""
    model = exposed("tied-qwen3")
    assert width_invariant(model)
    with closing(model.open(1, 80)) as plain, closing(model.open(1, 80, taps=[Tap((1, -1))])) as tapped:
        for begin, end in ((0, 60), (60, 61), (61, 80)):
            logits, beside = (state.forward([TEXT[begin:end]], [1])[0] for state in (plain, tapped))
            np.testing.assert_array_equal(logits, beside)


def test_models_without_hidden_states_say_how_to_get_them(model: OnnxModel, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"tiny-qwen2 .* convert it again with --hidden-states=-1,1,"):
        model.open(1, 20, taps=[Tap((1,)), Tap((-1,))])
    heads = published.save(tmp_path, "medusa", *METHODS["medusa"](VOCAB_SIZE))
    with pytest.raises(UnsupportedError, match="convert it again with --heads HEADS"):
        load_heads(heads, model)
    assert model.shared_weights is None


def test_a_layer_that_is_not_there_is_refused() -> None:
    weights = ir.Value(name="weights", const_value=ir.tensor(np.zeros((4, 9), np.float32)))
    head = ir.node("MatMul", [ir.Value(name="hidden"), weights])
    graph = ir.Graph([], [], nodes=[head], name="no-layers")
    with pytest.raises(OptionError, match="no hidden state 9 in a model of 2 layers"):
        expose(graph, [9], 2, head)
    with pytest.raises(UnsupportedError, match="does not show what goes into layer 1"):
        expose(graph, [1], 2, head)
    expose(graph, [-1, 2], 2, head)  # the same
    assert [value.name for value in graph.outputs] == ["hidden_state.last"]


@pytest.mark.parametrize("method", METHODS)
def test_heads_draft_as_they_do_on_torch(
    method: str, folders: dict[str, Path], exposed: Exposed, tmp_path: Path
) -> None:
    """The same drafts, and the text of plain decoding; drawn ones leave the seed's text alone too."""
    model = exposed("llama")
    reference = AutoModelForCausalLM.from_pretrained(folders["llama"])
    prompt = TEXT[:9]
    plain = generate(model, prompt, max_new_tokens=40).token_ids
    config, weights = METHODS[method](VOCAB_SIZE)
    if method in ("eagle", "medusa"):
        weights = trained(method, weights, reference, [*prompt, *plain])
    heads = published.save(tmp_path, method, config, weights)
    assert set(layers_read(heads)(published.NUM_LAYERS)) <= {*LAYERS, -1}
    engines = model, TorchModel(reference, name="tiny-llama")
    here, there = (
        generate(target, prompt, drafter=load_heads(heads, target), max_new_tokens=40, num_draft_tokens=3)
        for target in engines
    )
    assert here.token_ids == plain
    assert [step.drafted for step in here.steps] == [step.drafted for step in there.steps]
    if method in ("eagle", "medusa"):
        assert here.target_passes < 30
    with pytest.raises(UnsupportedError, match="cannot score trees; load it with engine='torch'"):
        generate(model, prompt, drafter=load_heads(heads, model, tree=DynamicTree()), max_new_tokens=5)
    sampled, undrafted = (
        generate(
            model,
            prompt,
            drafter=drafter,
            sampling=SamplingParams(temperature=0.5),
            max_new_tokens=20,
            verification="coupled",
            seed=3,
        )
        for drafter in (load_heads(heads, model), None)
    )
    assert sampled.token_ids == undrafted.token_ids


@pytest.mark.parametrize("name", MODELS)
def test_what_heads_share_is_kept_beside_the_model(
    name: str, exposed: Exposed, folders: dict[str, Path]
) -> None:
    """In float32, and a tied output layer only once."""
    file = exposed(name).shared_weights
    assert file is not None
    original = AutoModelForCausalLM.from_pretrained(folders[name])
    kept = load_file(file)
    assert ("output.weight" in kept) == (name != "tied-qwen3")
    backbone = Backbone.of(exposed(name))
    torch.testing.assert_close(backbone.embedding, original.get_input_embeddings().weight.data)
    hidden = torch.randn(3, backbone.width)
    torch.testing.assert_close(backbone.output(hidden), original.get_output_embeddings()(hidden))
