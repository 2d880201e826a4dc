"""Encoder-decoders in the loop: the output is that of transformers, whatever drafts."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import product
from time import perf_counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import PreTrainedModel

from draftwise.beam import beam_search
from draftwise.control.fixed import Fixed
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.input_copy import InputCopy
from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.suffix import Suffix
from draftwise.drafters.tree import TreeDraftModel
from draftwise.errors import PromptError, UnsupportedError
from draftwise.loop import begin, step
from draftwise.models.torch import EncoderDecoderModel, TorchModel
from draftwise.planning import timing
from draftwise.planning.text import write_text
from draftwise.request import Request
from draftwise.sampling import SamplingParams
from draftwise.sequence import Sequence as Row
from draftwise.types import FinishReason, Generation, Source
from draftwise.verification import RULES
from tests.fakes import GuessingDrafter
from tests.models import tiny
from tests.models.tiny import one_thread  # noqa: F401
from tests.models.tiny_seq2seq import ENCODER_DECODERS, SOURCES, bart, given, sources_of
from tests.test_joint_law import without_residual

MAX_NEW_TOKENS = 30


def greedy_search(
    model: PreTrainedModel, source: Source, max_new_tokens: int = MAX_NEW_TOKENS
) -> tuple[int, ...]:
    """What transformers' own greedy search adds to the tokens that a text begins with.

    Without a cache: transformers makes one of as many layers as the encoder has.
    """
    output = model.generate(**given(source), do_sample=False, use_cache=False, max_new_tokens=max_new_tokens)
    # Whisper's own leaves out what a text begins with.
    start = 0 if model.config.model_type == "whisper" else len(EncoderDecoderModel(model).encoder.start_ids)
    return tuple(output[0, start:].tolist())


class Pair:
    """A target and a draft model of one architecture, and what transformers makes of each source."""

    def __init__(self, architecture: str) -> None:
        self.model: PreTrainedModel = ENCODER_DECODERS[architecture]()
        self.target = EncoderDecoderModel(self.model)
        self.draft = EncoderDecoderModel(ENCODER_DECODERS[architecture](seed=1))
        self.sources = sources_of(architecture)
        self.expected = [greedy_search(self.model, source) for source in self.sources]


@pytest.fixture(scope="module", params=ENCODER_DECODERS)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


def partly_right(pair: Pair) -> Drafter:
    text = [*pair.target.encoder.start_ids, *pair.expected[0]]
    text[5::4] = [(token_id + 1) % tiny.VOCAB_SIZE for token_id in text[5::4]]
    return GuessingDrafter(lambda context: text[len(context) :])


DRAFTERS: dict[str, Callable[[Pair], Drafter]] = {
    "none": lambda pair: NoDrafter(),
    "partly right": partly_right,
    "draft model": lambda pair: DraftModel(pair.draft),
    "itself": lambda pair: DraftModel(pair.target),
    "tree": lambda pair: TreeDraftModel(pair.target),
    "lookup": lambda pair: PromptLookup(),
    "copy": lambda pair: InputCopy(),
    "suffix": lambda pair: Suffix(branching=2),
    "trigrams": lambda pair: NgramModel.count(pair.expected, tiny.VOCAB_SIZE, order=3).drafter(),
    "decoder only": lambda pair: DraftModel(TorchModel(tiny.llama())),
}


@contextmanager
def encoder_calls(model: PreTrainedModel) -> Iterator[list[None]]:
    calls: list[None] = []
    hook = model.get_encoder().register_forward_hook(lambda *_: calls.append(None))
    yield calls
    hook.remove()


def drafted(pair: Pair, drafter: str, num_draft_tokens: int = 3) -> Generation:
    return generate(
        pair.target,
        pair.sources[0],
        drafter=DRAFTERS[drafter](pair),
        max_new_tokens=MAX_NEW_TOKENS,
        num_draft_tokens=num_draft_tokens,
    )


@pytest.mark.parametrize("drafter", ["none", "partly right", "draft model", "itself", "tree", "copy"])
def test_output_is_that_of_transformers(pair: Pair, drafter: str) -> None:
    with encoder_calls(pair.model) as calls, encoder_calls(pair.draft.model) as draft_calls:
        generation = drafted(pair, drafter)
    assert generation.token_ids == pair.expected[0]
    assert generation.finish_reason is FinishReason.LENGTH
    assert len(calls) == (
        2 if drafter in ("itself", "tree") else 1
    )  # once for each state that reads the input
    assert len(draft_calls) == (drafter == "draft model")


# What depends on the drafter and on how far it goes, and not on the architecture.
@pytest.mark.parametrize("pair", ["bart"], indirect=True)
@pytest.mark.parametrize("num_draft_tokens", [1, 3, 7])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_output_does_not_depend_on_what_drafts(pair: Pair, drafter: str, num_draft_tokens: int) -> None:
    generation = drafted(pair, drafter, num_draft_tokens)
    assert generation.token_ids == pair.expected[0]
    if drafter == "itself":
        assert generation.target_passes == -(-MAX_NEW_TOKENS // (num_draft_tokens + 1))


def test_the_texts_can_tell_right_from_wrong(pair: Pair) -> None:
    """They differ by input, are not one token over and over, and no two best logits are nearly the same."""
    assert len(set(pair.expected)) == len(pair.sources)
    for source, expected in zip(pair.sources, pair.expected, strict=True):
        assert len(set(expected)) > 8
        text = [*pair.target.encoder.start_ids, *expected]
        with torch.inference_mode():
            logits = pair.model(
                **given(source), decoder_input_ids=torch.tensor([text]), use_cache=False
            ).logits
        best = logits[0].topk(2).values
        assert (best[:, 0] - best[:, 1]).min() > 1e-3


def rows_of(pair: Pair, budgets: list[int]) -> list[Row]:
    return [
        Request(source, max_new_tokens=budget).sequence(pair.target)
        for source, budget in zip(pair.sources, budgets, strict=True)
    ]


def run(target: EncoderDecoderModel, drafter: Drafter, rows: list[Row], num_draft_tokens: int) -> None:
    max_length = max(row.max_length for row in rows)
    with (
        closing(drafter.open(target, len(rows), max_length)) as drafting,
        closing(target.open(len(rows), max_length)) as cache,
    ):
        for row, sequence in enumerate(rows):
            begin(cache, drafting, [row], sequence)
        while not all(row.finish_reason for row in rows):
            step(cache, drafting, Fixed(num_draft_tokens), rows)


def emitted(row: Row) -> tuple[int, ...]:
    return tuple(row.token_ids[row.num_prompt_tokens :])


@pytest.mark.parametrize("drafter", ["draft model", "copy", "tree"])
def test_rows_with_different_inputs_are_the_same_rows_alone(pair: Pair, drafter: str) -> None:
    """They end one by one; then the last row begins anew with another input, beside those that are over."""
    budgets = [9, 19, MAX_NEW_TOKENS]
    rows = rows_of(pair, budgets)
    guesser = DRAFTERS[drafter](pair)
    with (
        encoder_calls(pair.model) as calls,
        closing(guesser.open(pair.target, 3, 60)) as drafting,
        closing(pair.target.open(3, 60)) as cache,
    ):
        for row, sequence in enumerate(rows):
            begin(cache, drafting, [row], sequence)
        while not all(row.finish_reason for row in rows):
            step(cache, drafting, Fixed(3), rows)
        assert len(calls) == (6 if drafter == "tree" else 3)
        another = rows_of(pair, budgets)[0]
        cache.begin(2, another.source)
        drafting.begin(2, another.source)
        while not another.finish_reason:
            step(cache, drafting, Fixed(3), [rows[0], rows[1], another])
    together = [emitted(row) for row in [*rows, another]]
    expected = [*zip(pair.expected, budgets, strict=True), (pair.expected[0], budgets[0])]
    assert together == [text[:budget] for text, budget in expected]


@pytest.mark.parametrize("drafter", ["none", "draft model", "lookup"])
def test_what_the_generation_config_bans_is_left_out_as_in_transformers(drafter: str) -> None:
    model = bart()
    before = greedy_search(model, SOURCES[0])
    model.generation_config.forced_bos_token_id = before[0]
    model.generation_config.begin_suppress_tokens = [before[1]]
    model.generation_config.suppress_tokens = [before[5]]
    model.generation_config.bad_words_ids = [[before[7]]]
    model.generation_config.eos_token_id = before[20]
    expected = greedy_search(model, SOURCES[0], MAX_NEW_TOKENS + 1)
    assert expected != before[1:]
    assert not {before[5], before[7]} & set(expected)
    drafters: dict[str, Drafter] = {
        "none": NoDrafter(),
        "draft model": DraftModel(EncoderDecoderModel(bart())),
        "lookup": PromptLookup(),
    }
    generation = generate(
        EncoderDecoderModel(model),
        SOURCES[0],
        drafter=drafters[drafter],
        max_new_tokens=MAX_NEW_TOKENS,
        num_draft_tokens=3,
    )
    assert generation.token_ids == expected
    assert generation.num_prompt_tokens == 2


VOCAB_SIZE, NUM_RUNS = 4, 500


def small(architecture: str, seed: int, sureness: float) -> EncoderDecoderModel:
    """Of few tokens. `sureness`: by which its logits are multiplied."""
    model = ENCODER_DECODERS[architecture](seed=seed, vocab_size=VOCAB_SIZE)
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach() * sureness)
    return EncoderDecoderModel(model)


def p_value(target: EncoderDecoderModel, drafter: Drafter) -> float:
    """How likely counts of two tokens, at least this far from the target's law, are under that law."""
    source, start = (1, 2, 3, 2), target.encoder.start_ids
    law = {}
    for text in product(range(VOCAB_SIZE), repeat=2):
        with torch.inference_mode():
            logits = target.model(
                input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[*start, *text]])
            ).logits[0]
        probs = logits[len(start) - 1 : -1].double().softmax(-1)
        law[text] = float(np.prod([probs[at, token_id] for at, token_id in enumerate(text)]))
    rows = [
        Request(source, SamplingParams(1.0), max_new_tokens=2, seed=seed).sequence(target)
        for seed in range(NUM_RUNS)
    ]
    run(target, drafter, rows, num_draft_tokens=1)
    counts = Counter(emitted(row) for row in rows)
    expected = NUM_RUNS * np.array(list(law.values()))
    assert expected.min() > 5  # few enough cells for the approximation to hold
    return float(chisquare([counts[tokens] for tokens in law], expected).pvalue)


def test_counts_agree_with_the_law_of_the_target() -> None:
    assert p_value(small("t5", 0, 0.02), DraftModel(small("t5", 1, 0.1))) > 1e-4
    assert p_value(small("bart", 0, 0.02), InputCopy()) > 1e-4


def test_a_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "auto", without_residual)
    assert p_value(small("t5", 0, 0.02), DraftModel(small("t5", 1, 0.1))) < 1e-6


def test_how_many_tokens_pay_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "CONTEXTS", (8,))
    monkeypatch.setattr(timing, "MAX_ROUNDS", 3)
    target = EncoderDecoderModel(bart())
    measure = partial(timing.draft_times, budget=0, clock=perf_counter, progress=lambda *_: None)
    verify = timing.pass_times(target, budget=0, clock=perf_counter, progress=lambda *_: None)
    for drafter in (PromptLookup(), DraftModel(EncoderDecoderModel(bart(seed=1)))):
        times = measure(drafter, target, verify)
        assert times.draft[8].keys() == {1, 2, 4, 8}
        generation = generate(target, SOURCES[0], drafter=drafter, max_new_tokens=9, num_draft_tokens="auto")
        assert generation.token_ids == greedy_search(target.model, SOURCES[0], 9)


def test_what_does_not_go_together_is_refused_by_name() -> None:
    target = EncoderDecoderModel(bart(), name="the target")
    with pytest.raises(UnsupportedError, match=r"the target.*cannot draft for the llama"):
        generate(
            TorchModel(tiny.llama(), name="the llama"),
            [1, 2],
            drafter=DraftModel(target),
            max_new_tokens=5,
            num_draft_tokens=3,
        )
    with pytest.raises(UnsupportedError, match=r"the target.*beam search"):
        beam_search(target, [1, 2], num_beams=2, max_new_tokens=5)
    with pytest.raises(UnsupportedError, match=r"the target.*planning"):
        write_text(target, [1, 2])
    with pytest.raises(PromptError, match="the target reads text"):
        generate(target, np.zeros((80, 3000), np.float32))
    with pytest.raises(PromptError, match=r"400 tokens.*the target"):
        generate(target, [3] * 400)
    with pytest.raises(PromptError, match="the target has no tokenizer"):
        generate(target, "text")
