"""`generate` of transformers with and without drafts."""

from collections import Counter
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.generation.streamers import BaseStreamer

from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.translation.text import TextDraftModel
from draftwise.errors import TokenizerMismatchError, UnsupportedError
from draftwise.integrations.transformers import Speculative, generate
from draftwise.models.torch import TorchModel
from draftwise.models.torch.feed import Piece
from draftwise.verification import RULES
from tests.drafters.translation.test_text import TOKENIZERS
from tests.models.tiny import ARCHITECTURES, llama, one_thread
from tests.test_joint_law import without_residual
from tests.tiny_folders import byte_level, tiny_llama

__all__ = ["one_thread"]
PROMPT = torch.tensor([[5, 3, 96, 17, 5, 3, 8, 44, 2]])
LOOKUP = PromptLookup()
GREEDY: dict[str, Any] = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0}


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return llama()


@pytest.fixture(scope="module")
def drafter() -> Drafter:
    """The target with noise on its output layer, so that its guesses are often right and often wrong."""
    draft = llama()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        draft.lm_head.weight += 0.2 * torch.randn_like(draft.lm_head.weight)
    return DraftModel(TorchModel(draft, name="draft"))


def both(
    model: PreTrainedModel, drafter: Drafter, inputs: torch.Tensor = PROMPT, **options: Any
) -> list[Any]:
    return [
        model.generate(inputs, **options),
        model.generate(inputs, custom_generate=Speculative(drafter, num_draft_tokens=4), **options),
    ]


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma2", "opt"])
def test_greedy_output_is_that_of_transformers(architecture: str, drafter: Drafter) -> None:
    model = ARCHITECTURES[architecture]()
    for each in (LOOKUP, drafter):
        plain, drafted = both(model, each, **GREEDY)
        assert torch.equal(plain, drafted)
        assert drafted.shape[1] == PROMPT.shape[1] + 24


# Of the tiny Llama's own greedy output, by position: what is asked for has something to change.
OPTIONS: dict[str, dict[str, Any]] = {
    "penalty": {"repetition_penalty": 1.3},
    "n-grams and bad words": {"no_repeat_ngram_size": 2, "bad_words_ids": [[5], [3, 8]]},
    "bias": {"sequence_bias": [[[4], 3.0], [[9, 7], -2.0]], "suppress_tokens": [11, 12]},
    "forced end": {"forced_eos_token_id": 3, "eos_token_id": [3]},
    "early end": {"eos_token_id": list(range(40, 60))},
    "no early end": {"eos_token_id": list(range(40, 60)), "min_new_tokens": 9},
    "length": {"max_new_tokens": None, "max_length": 15, "min_length": 12, "eos_token_id": list(range(60))},
    "decay": {"exponential_decay_length_penalty": (4, 1.5), "eos_token_id": 7},
    "prefix": {"prefix_allowed_tokens_fn": lambda row, ids: list(range(int(ids[-1]) % 7, 97, 3))},
    # As a trie that has no entry beyond an end.
    "prefix up to the end": {
        "eos_token_id": [30, 52],
        "prefix_allowed_tokens_fn": lambda row, ids: [] if int(ids[-1]) in (30, 52) else list(range(97)),
    },
    "watermark": {"watermarking_config": {"bias": 2.5, "seeding_scheme": "selfhash"}},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_what_changes_logits_and_ends_output(
    options: dict[str, Any], model: PreTrainedModel, drafter: Drafter
) -> None:
    for each in (LOOKUP, drafter):
        plain, drafted = both(model, each, **GREEDY | options)
        assert torch.equal(plain, drafted)


def test_a_generation_config_is_honoured(model: PreTrainedModel) -> None:
    config = GenerationConfig(max_new_tokens=11, repetition_penalty=1.5, do_sample=False, pad_token_id=0)
    plain, drafted = both(model, LOOKUP, generation_config=config)
    assert torch.equal(plain, drafted)
    assert drafted.shape[1] == PROMPT.shape[1] + 11


def test_rows_of_a_padded_batch(model: PreTrainedModel, drafter: Drafter) -> None:
    """Of different lengths, which end at different tokens; a penalty sees the padding too."""
    inputs = torch.tensor([[0, 0, 0, 5, 3, 96], [8, 44, 2, 8, 44, 2], [0, 7, 7, 9, 7, 7]])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [1] * 6, [0, 1, 1, 1, 1, 1]])
    options = GREEDY | {
        "eos_token_id": list(range(30, 50)),
        "repetition_penalty": 1.2,
        "min_length": 8,
        "prefix_allowed_tokens_fn": lambda row, ids: list(range(row, 97, 2)),
    }
    plain, drafted = both(model, drafter, inputs, attention_mask=mask, **options)
    assert torch.equal(plain, drafted)
    assert len({int((row != 0).sum()) for row in drafted}) > 1


@pytest.mark.parametrize("options", [GREEDY, {"do_sample": True, "top_k": 5, "pad_token_id": 0}])
def test_rows_are_in_a_batch_what_they_are_alone(
    options: dict[str, Any], model: PreTrainedModel, drafter: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the seeds that they have in the batch, which are drawn in their order, and in fewer passes."""
    inputs = torch.tensor([[0, 0, 0, 5, 3, 96], [8, 44, 2, 8, 44, 2], [0, 7, 7, 9, 7, 7]])
    mask = (inputs != 0).long()
    options = options | {"max_new_tokens": 20, "eos_token_id": list(range(30, 36))}
    passes = 0
    score = TorchModel.score

    def counted(self: TorchModel, piece: Piece, cache: Any) -> Any:
        nonlocal passes
        passes += self.name != "draft"
        return score(self, piece, cache)

    monkeypatch.setattr(TorchModel, "score", counted)
    torch.manual_seed(5)
    together = model.generate(
        inputs, attention_mask=mask, custom_generate=Speculative(drafter, num_draft_tokens=4), **options
    )
    passes_together, passes = passes, 0
    torch.manual_seed(5)
    for row, (padded, seen) in enumerate(zip(inputs, mask, strict=True)):
        alone = model.generate(
            padded[seen == 1][None], custom_generate=Speculative(drafter, num_draft_tokens=4), **options
        )[0]
        made = together[row, int((seen == 0).sum()) :]
        assert torch.equal(made[: len(alone)], alone)
        assert not made[len(alone) :].any()
    assert passes_together < passes


def test_scores_and_logits(model: PreTrainedModel) -> None:
    options = GREEDY | {"repetition_penalty": 1.3, "bad_words_ids": [[5]], "return_dict_in_generate": True}
    plain, drafted = both(model, LOOKUP, output_scores=True, output_logits=True, **options)
    assert torch.equal(plain.sequences, drafted.sequences)
    for kind in ("scores", "logits"):
        assert len(drafted[kind]) == len(plain[kind]) == 24
        for one, other in zip(plain[kind], drafted[kind], strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


class Ban(LogitsProcessor):
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, (input_ids[0, -1] + 1) % 97 :] -= 2.0
        return scores


class Enough(StoppingCriteria):
    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return input_ids.sum(-1) > 400


def test_processors_and_criteria_of_ones_own(model: PreTrainedModel, drafter: Drafter) -> None:
    options = GREEDY | {"logits_processor": [Ban()], "stopping_criteria": [Enough()]}
    plain, drafted = both(model, drafter, **options)
    assert torch.equal(plain, drafted)
    assert drafted.shape[1] < PROMPT.shape[1] + 24


SAMPLED: dict[str, Any] = {
    "do_sample": True,
    "temperature": 1.4,
    "top_k": 4,
    "top_p": 0.95,
    "repetition_penalty": 1.2,
    "max_new_tokens": 3,
    "pad_token_id": 0,
}


def law_of_two(model: PreTrainedModel) -> dict[tuple[int, int], float]:
    """The joint law of the first two tokens, by the scores of transformers after each first token."""

    def probs(ids: torch.Tensor) -> torch.Tensor:
        made = model.generate(
            ids, **SAMPLED | {"max_new_tokens": 1}, output_scores=True, return_dict_in_generate=True
        )
        scores: torch.Tensor = made.scores[0][0]
        return scores.double().softmax(-1)

    first = probs(PROMPT)
    return {
        (int(one), int(two)): float(first[one] * second[two])
        for one in first.nonzero()[:, 0]
        for second in [probs(torch.cat([PROMPT, one.view(1, 1)], -1))]
        for two in second.nonzero()[:, 0]
    }


def p_value(model: PreTrainedModel, drafter: Drafter, law: dict[tuple[int, int], float]) -> float:
    torch.manual_seed(0)
    made = model.generate(
        PROMPT.expand(400, -1), custom_generate=Speculative(drafter, num_draft_tokens=2), **SAMPLED
    )
    counts = Counter((int(row[-3]), int(row[-2])) for row in made)
    assert counts.keys() <= law.keys()
    return float(chisquare([counts[pair] for pair in law], [400 * law[pair] for pair in law]).pvalue)


def test_sampled_counts_are_those_of_transformers(
    model: PreTrainedModel, drafter: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = law_of_two(model)
    assert len(law) > 6
    assert p_value(model, drafter, law) > 1e-3
    monkeypatch.setitem(RULES, "auto", without_residual)
    assert p_value(model, drafter, law) < 1e-9


def test_samples_follow_the_seed_of_torch_and_differ(model: PreTrainedModel, drafter: Drafter) -> None:
    def sample() -> torch.Tensor:
        torch.manual_seed(3)
        made: torch.Tensor = model.generate(
            PROMPT,
            custom_generate=Speculative(drafter, num_draft_tokens=4),
            **SAMPLED | {"num_return_sequences": 4, "max_new_tokens": 12},
        )
        return made

    once = sample()
    assert torch.equal(once, sample())
    assert once.shape == (4, PROMPT.shape[1] + 12)
    assert len({tuple(row.tolist()) for row in once}) == 4


class Listener(BaseStreamer):
    def __init__(self) -> None:
        self.heard: list[int] = []
        self.ended = 0

    def put(self, value: torch.Tensor) -> None:
        self.heard += value.flatten().tolist()

    def end(self) -> None:
        self.ended += 1


def test_streamers_hear_the_prompt_and_each_token(model: PreTrainedModel) -> None:
    heard = []
    for decode in (
        model.generate,
        lambda *given, **options: generate(model, *given, drafter=LOOKUP, num_draft_tokens=4, **options),
    ):
        listener = Listener()
        decode(PROMPT, streamer=listener, **GREEDY)
        heard.append(listener.heard)
        assert listener.ended == 1
    assert heard[0] == heard[1]
    with pytest.raises(UnsupportedError, match="a streamer hears one row"):
        generate(model, PROMPT.expand(2, -1), drafter=LOOKUP, streamer=Listener(), **GREEDY)


@pytest.mark.parametrize("in_config", [False, True])
def test_stop_strings_end_the_output(in_config: bool) -> None:
    model = tiny_llama()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<|im_end|>")
    inputs = tokenizer("over the", return_tensors="pt").input_ids
    text = tokenizer.decode(model.generate(inputs, **GREEDY)[0, inputs.shape[1] :])
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    config = GenerationConfig(**GREEDY, stop_strings=[stop], eos_token_id=4)
    options = {"generation_config": config} if in_config else GREEDY | {"stop_strings": [stop]}
    plain = model.generate(inputs, tokenizer=tokenizer, **options)
    drafted = generate(model, inputs, drafter=LOOKUP, num_draft_tokens=4, tokenizer=tokenizer, **options)
    assert torch.equal(plain, drafted)
    assert drafted.shape[1] < inputs.shape[1] + 24
    assert config.stop_strings == [stop]
    with pytest.raises(UnsupportedError, match="stop_strings need the tokenizer"):
        generate(model, inputs, drafter=LOOKUP, num_draft_tokens=4, **options)


def test_a_drafter_with_another_tokenizer_takes_the_models(model: PreTrainedModel) -> None:
    model = tiny_llama()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<|im_end|>")
    own = TOKENIZERS["byte-fallback"]
    drafter = TextDraftModel(TorchModel(llama(vocab_size=own.vocab_size), own, "draft"))
    inputs = tokenizer("over the", return_tensors="pt").input_ids
    plain = model.generate(inputs, **GREEDY)
    assert torch.equal(
        generate(model, inputs, drafter=drafter, num_draft_tokens=4, tokenizer=tokenizer, **GREEDY), plain
    )
    with pytest.raises(TokenizerMismatchError, match="LlamaForCausalLM has no tokenizer"):
        generate(model, inputs, drafter=drafter, num_draft_tokens=4, **GREEDY)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"num_beams": 2}, "beam search"),
        ({"prompt_lookup_num_tokens": 3}, "assisted generation"),
        ({"guidance_scale": 1.5}, "UnbatchedClassifierFreeGuidanceLogitsProcessor"),
        ({"output_attentions": True, "return_dict_in_generate": True}, "output_attentions"),
        ({"output_hidden_states": True, "return_dict_in_generate": True}, "output_hidden_states"),
        ({"encoder_repetition_penalty": 1.5}, "EncoderRepetitionPenaltyLogitsProcessor"),
        ({"inputs_embeds": torch.zeros(1, 9, 32)}, "inputs_embeds"),
        (
            {
                "num_return_sequences": 2,
                "do_sample": True,
                "output_scores": True,
                "return_dict_in_generate": True,
            },
            "output_scores",
        ),
        ({"position_ids": torch.arange(3, 12)[None]}, "position_ids do not count"),
        ({"attention_mask": torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1, 1]])}, "attention_mask hides"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_honoured_is_refused_by_name(
    options: dict[str, Any], name: str, model: PreTrainedModel
) -> None:
    with pytest.raises(UnsupportedError, match=name):
        model.generate(PROMPT, custom_generate=Speculative(LOOKUP, num_draft_tokens=4), **GREEDY | options)


def test_other_ways_to_guess_and_other_models_are_refused(model: PreTrainedModel) -> None:
    with pytest.raises(UnsupportedError, match="assistant_model and drafter are two ways"):
        generate(model, PROMPT, drafter=LOOKUP, num_draft_tokens=4, assistant_model=model)
    config = T5Config(vocab_size=97, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    t5 = T5ForConditionalGeneration(config)
    with pytest.raises(UnsupportedError, match="encoder-decoder"):
        t5.generate(
            PROMPT,
            custom_generate=Speculative(LOOKUP, num_draft_tokens=4),
            decoder_start_token_id=0,
            max_new_tokens=4,
        )
