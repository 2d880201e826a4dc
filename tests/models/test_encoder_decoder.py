"""Encoder-decoders on PyTorch beyond what every backend must do: the encoder, positions, refusals."""

from contextlib import closing

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, WhisperFeatureExtractor

from draftwise.decoding import generate
from draftwise.drafters.draft_model import DraftModel
from draftwise.errors import OptionError, PromptError, UnsupportedError
from draftwise.models.torch import EncoderDecoderModel, TorchModel, engine
from draftwise.models.torch.encoders import SoundEncoder
from draftwise.types import Source
from tests.models import tiny
from tests.models.tiny import one_thread  # noqa: F401
from tests.models.tiny_seq2seq import (
    ENCODER_DECODERS,
    FRAMES,
    MEL_BINS,
    SOUNDS,
    SOURCES,
    bart,
    given,
    sources_of,
    whisper,
)

TEXT = [int(token_id) for token_id in np.random.default_rng(0).integers(0, tiny.VOCAB_SIZE, 100)]
every_architecture = pytest.mark.parametrize("architecture", ENCODER_DECODERS)


def by_transformers(model: PreTrainedModel, source: Source, text: list[int]) -> np.ndarray:
    with torch.inference_mode():
        output = model(**given(source), decoder_input_ids=torch.tensor([text]), use_cache=False)
    logits: np.ndarray = output.logits[0].numpy()
    return logits


@every_architecture
def test_logits_are_those_of_transformers_without_a_cache(architecture: str) -> None:
    """Of rows with different inputs, ragged and wide, and after going back to where positions were others."""
    model, sources = ENCODER_DECODERS[architecture](), sources_of(architecture)
    expected = [by_transformers(model, source, TEXT) for source in sources]
    with closing(EncoderDecoderModel(model).open(3, 120)) as state:
        for row, source in enumerate(sources):
            state.begin(row, source)
        first, second, third = state.forward([TEXT[:70], TEXT[:1], TEXT[:33]], [20, 1, 33])
        np.testing.assert_allclose(first, expected[0][50:70], atol=2e-4)
        np.testing.assert_allclose(second, expected[1][:1], atol=2e-4)
        np.testing.assert_allclose(third, expected[2][:33], atol=2e-4)
        state.keep(0, 11)
        state.keep(2, 30)
        first, second, third = state.forward([TEXT[11:], TEXT[1:60], TEXT[30:31]], [89, 59, 1])
        np.testing.assert_allclose(first, expected[0][11:], atol=2e-4)
        np.testing.assert_allclose(second, expected[1][1:60], atol=2e-4)
        np.testing.assert_allclose(third, expected[2][30:31], atol=2e-4)


@every_architecture
def test_the_test_above_would_see_another_input_and_another_position(architecture: str) -> None:
    model, sources = ENCODER_DECODERS[architecture](), sources_of(architecture)
    expected = by_transformers(model, sources[0], TEXT)
    assert np.abs(by_transformers(model, sources[1], TEXT) - expected).max(axis=1).min() > 1e-2
    assert np.abs(by_transformers(model, sources[0], TEXT[1:]) - expected[1:]).max(axis=1).mean() > 1e-2


@every_architecture
def test_long_feeds_go_through_in_pieces(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, sources = ENCODER_DECODERS[architecture](), sources_of(architecture)
    monkeypatch.setattr(engine, "PIECE_WIDTH", 8)
    with closing(EncoderDecoderModel(model).open(2, 120)) as state:
        state.begin(0, sources[0])
        state.begin(1, sources[1])
        for logits, source in zip(state.forward([TEXT, TEXT[:9]], [100, 9]), sources[:2], strict=True):
            np.testing.assert_allclose(logits, by_transformers(model, source, TEXT[: len(logits)]), atol=2e-4)


@pytest.mark.parametrize("architecture", ["t5", "bart"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_kinds_of_attention(attention: str, architecture: str) -> None:
    model = ENCODER_DECODERS[architecture](attn_implementation=attention)
    assert model.config._attn_implementation == attention
    with closing(EncoderDecoderModel(model).open(2, 120)) as state:
        state.begin(0, SOURCES[0])
        state.begin(1, SOURCES[1])
        _, logits = state.forward([TEXT[:3], TEXT[:50]], [0, 50])
    np.testing.assert_allclose(logits, by_transformers(model, SOURCES[1], TEXT[:50]), atol=2e-4)


def test_a_row_that_begins_anew_reads_another_input() -> None:
    """A longer one than there was room for, beside a row that keeps its own; then a shorter one."""
    model = bart()
    with closing(EncoderDecoderModel(model).open(2, 50)) as state:
        state.begin(0, SOURCES[0])
        state.begin(1, SOURCES[1])
        state.forward([TEXT[:20], TEXT[:20]], [0, 0])
        for source in (SOURCES[2], SOURCES[1]):
            state.begin(1, source)
            assert list(state.lengths) == [20, 0]
            first, second = state.forward([TEXT[20:25], TEXT[:5]], [5, 5])
            np.testing.assert_allclose(first, by_transformers(model, SOURCES[0], TEXT[:25])[20:], atol=2e-4)
            np.testing.assert_allclose(second, by_transformers(model, source, TEXT[:5]), atol=2e-4)
            state.keep(0, 20)


def test_only_the_logits_asked_for_are_computed() -> None:
    model = bart()
    computed: list[int] = []
    head = model.get_output_embeddings()
    with closing(EncoderDecoderModel(model).open(2, 50)) as state:
        state.begin(0, SOURCES[0])
        state.begin(1, SOURCES[1])
        hook = head.register_forward_hook(lambda *call: computed.append(call[-1].numel() // tiny.VOCAB_SIZE))
        state.forward([TEXT[:20], TEXT[:9]], [1, 4])
        hook.remove()
    assert sum(computed) == 5


@pytest.mark.parametrize("option", ["suppress_tokens", "bad_words_ids", "begin_suppress_tokens"])
def test_tokens_that_are_never_emitted_have_no_probability(option: str) -> None:
    model = bart()
    suppressed = [5, 7, 96]
    value = [[token_id] for token_id in suppressed] if option == "bad_words_ids" else suppressed
    setattr(model.generation_config, option, value)
    model.generation_config.forced_bos_token_id = 4
    expected = by_transformers(model, SOURCES[0], TEXT[:6])
    expected[1 if option == "begin_suppress_tokens" else slice(None), suppressed] = -np.inf
    target = EncoderDecoderModel(model)
    assert target.encoder.start_ids == (2, 4)
    with closing(target.open(1, 50)) as state:
        state.begin(0, SOURCES[0])
        (logits,) = state.forward([TEXT[:6]], [6])
    np.testing.assert_allclose(logits, expected, atol=2e-4)


def test_what_the_model_says_of_itself() -> None:
    assert EncoderDecoderModel(bart(eos_token_id=7)).eos_token_ids == {7}
    assert EncoderDecoderModel(bart()).max_length == EncoderDecoderModel(whisper()).max_length == 256
    assert EncoderDecoderModel(ENCODER_DECODERS["t5"](), name="tiny").max_length > 100_000
    with pytest.raises(OptionError, match=r"257.*tiny.*256"):
        EncoderDecoderModel(bart(), name="tiny").open(1, 257)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ((3,) * 257, r"257 tokens.*tiny.*256"),
        ((3, 97), r"97.*tiny.*97"),
        (np.zeros(400), "tiny reads text"),
    ],
    ids=["too long", "outside the vocabulary", "sound"],
)
def test_what_the_encoder_cannot_read_is_refused(source: Source, said: str) -> None:
    target = EncoderDecoderModel(bart(), name="tiny")
    with pytest.raises(PromptError, match=said):
        target.encoder.check(source)
    with pytest.raises(PromptError, match=said):
        target.open(1, 10).begin(0, source)


def test_a_row_that_has_read_nothing_is_refused() -> None:
    state = EncoderDecoderModel(bart(), name="tiny").open(2, 10)
    with pytest.raises(OptionError, match="tiny has an encoder"):
        state.begin(0, None)
    state.begin(0, SOURCES[0])
    with pytest.raises(OptionError, match=r"row 1.*tiny"):
        state.forward([[1], [1]], [1, 1])
    assert len(state.forward([[1], []], [1, 0])[0]) == 1


def test_what_is_not_an_encoder_decoder_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"tiny has no encoder"):
        EncoderDecoderModel(tiny.llama(), name="tiny")
    with pytest.raises(UnsupportedError, match=r"tiny.*encoder-decoder"):
        TorchModel(bart(), name="tiny")
    with pytest.raises(UnsupportedError, match=r"tiny.*layers"):
        EncoderDecoderModel(bart(), name="tiny").without_layers([0])
    nowhere = bart()
    nowhere.generation_config.decoder_start_token_id = nowhere.config.decoder_start_token_id = None
    nowhere.generation_config.bos_token_id = nowhere.config.bos_token_id = None
    with pytest.raises(UnsupportedError, match=r"tiny.*decoder_start_token_id"):
        EncoderDecoderModel(nowhere, name="tiny")


def extractor() -> WhisperFeatureExtractor:
    """One that makes features of the shape that the tiny Whisper reads."""
    return WhisperFeatureExtractor(feature_size=MEL_BINS, chunk_length=1)


def test_a_waveform_is_heard_by_way_of_its_features() -> None:
    """A short one is followed by silence."""
    model = whisper()
    target = EncoderDecoderModel(model, feature_extractor=extractor())
    waveform = np.sin(np.arange(7000) / 9).astype(np.float32)
    features = extractor()(waveform, sampling_rate=16000, return_tensors="np").input_features[0]
    with closing(target.open(2, 20)) as state:
        state.begin(0, waveform)
        state.begin(1, features)
        heard, given_features = state.forward([TEXT[:9], TEXT[:9]], [9, 9])
    np.testing.assert_allclose(heard, by_transformers(model, features, TEXT[:9]), atol=2e-4)
    np.testing.assert_allclose(heard, given_features, atol=2e-4)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ((1, 2), "tiny reads sound"),
        (np.zeros((MEL_BINS, FRAMES - 1)), rf"tiny reads features of shape \({MEL_BINS}, {FRAMES}\)"),
        (np.zeros(16001), r"16001 samples.*tiny.*16000"),
    ],
    ids=["text", "another shape", "too long"],
)
def test_what_cannot_be_heard_is_refused(source: Source, said: str) -> None:
    target = EncoderDecoderModel(whisper(), name="tiny", feature_extractor=extractor())
    with pytest.raises(PromptError, match=said):
        target.encoder.check(source)
    with pytest.raises(PromptError, match="feature extractor"):
        EncoderDecoderModel(whisper()).encoder.check(np.zeros(100))


def multilingual() -> PreTrainedModel:
    model = whisper()
    for key, value in {
        "is_multilingual": True,
        "lang_to_id": {"<|en|>": 50, "<|de|>": 51},
        "task_to_id": {"transcribe": 60, "translate": 61},
        "no_timestamps_token_id": 96,  # what comes after it would be times
        "suppress_tokens": [7, 9, 60, 61],
        "begin_suppress_tokens": list(range(20, 50)),
    }.items():
        setattr(model.generation_config, key, value)
    return model


def test_a_multilingual_whisper_is_told_what_it_hears() -> None:
    model = multilingual()
    target = EncoderDecoderModel(model, name="tiny")
    assert isinstance(target.encoder, SoundEncoder)
    with pytest.raises(PromptError, match=r"tiny knows many languages.*hear"):
        generate(target, SOUNDS[0])
    for said, start_ids in [
        (("german",), (2, 51, 60, 96)),
        (("de", "translate"), (2, 51, 61, 96)),
        (("english", "transcribe"), (2, 50, 60, 96)),
    ]:
        target.encoder.hear(*said)
        assert target.encoder.start_ids == start_ids
        expected = model.generate(
            **given(SOUNDS[0]),
            **dict(zip(("language", "task"), said, strict=False)),
            do_sample=False,
            use_cache=False,
            max_new_tokens=12,
        )
        generation = generate(
            target, SOUNDS[0], drafter=DraftModel(target), max_new_tokens=12, num_draft_tokens=3
        )
        assert list(generation.token_ids) == expected[0].tolist()
        assert generation.num_prompt_tokens == 4
    for wrong in ("french", "klingon"):
        with pytest.raises(OptionError, match=rf"tiny does not transcribe {wrong}"):
            target.encoder.hear(wrong)
    with pytest.raises(OptionError, match=r"tiny.*one language"):
        EncoderDecoderModel(whisper(), name="tiny").encoder.hear("english")  # type: ignore[union-attr]
    model.generation_config.language = "en"
    assert EncoderDecoderModel(model).encoder.start_ids == (2, 50, 60, 96)
