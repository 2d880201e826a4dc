"""Rows that join, go on and leave are what they would be alone."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import chisquare

from draftwise.batch import Batch
from draftwise.batches import generate_batch, generate_samples, run_batch
from draftwise.control.fixed import Fixed
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.growth import DynamicTree, StaticTree
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.tree import TreeDraftModel
from draftwise.errors import DraftwiseError, OptionError, PromptError
from draftwise.models.base import LanguageModel
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel
from draftwise.models.torch import TorchModel
from draftwise.models.torch.encoder_decoder import EncoderDecoderModel
from draftwise.request import Request
from draftwise.sampling import SamplingParams
from draftwise.sequence import Sequence as Row
from draftwise.types import FinishReason, Generation, Step
from tests.drafters.case import Case
from tests.drafters.cases import ANYWHERE, TARGET, TOKENIZER
from tests.enumeration import law_of_target
from tests.models import tiny, tiny_seq2seq
from tests.models.tiny import one_thread

__all__ = ["one_thread"]

OWN: dict[str, Any] = {"num_draft_tokens": None}  # the drafter's own
SAMPLINGS = [
    None,
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.8, top_k=3),
    SamplingParams(temperature=1.3, top_p=0.9, min_p=0.02),
]


def varied(seed: int, vocab_size: int, *, most: int = 40, stop: Sequence[str] = ()) -> Request:
    """A request that differs from others in every option."""
    rng = np.random.default_rng(seed)
    sampling = SAMPLINGS[int(rng.integers(len(SAMPLINGS)))]
    verification = ["auto", "token", "block", "coupled"][int(rng.integers(4))]
    return Request(
        rng.integers(vocab_size, size=int(rng.integers(1, 30))).tolist(),
        sampling=sampling,
        max_new_tokens=int(rng.integers(1, most)),
        stop=stop if rng.random() < 0.3 else (),
        stop_token_ids=[0] if rng.random() < 0.3 else (),
        ignore_eos=bool(rng.random() < 0.5),
        verification=verification,
        seed=seed,
    )


def alone(target: LanguageModel, request: Request, drafter: Drafter, **options: Any) -> Generation:
    (generation,) = generate_batch(target, [request], drafter=drafter, **{**OWN, **options})
    return generation


def assert_same(one: Generation, other: Generation) -> None:
    """All but the time it took."""
    assert (one.token_ids, one.text, one.finish_reason) == (other.token_ids, other.text, other.finish_reason)
    assert one.num_prompt_tokens == other.num_prompt_tokens
    for mine, theirs in zip(one.steps, other.steps, strict=True):
        assert mine == replace(theirs, row=mine.row, seconds=mine.seconds)


TABLE = TabularModel(TARGET.table, tokenizer=TOKENIZER, eos_token_ids=[3])
STOPS = tuple(TOKENIZER.decode(token_ids) for token_ids in ([0, 1], [2, 2, 0]))


@pytest.mark.parametrize("case", ANYWHERE, ids=lambda case: case.name)
def test_eight_rows_are_each_as_alone(case: Case) -> None:
    requests = [varied(seed, 4, stop=STOPS) for seed in range(8)]
    together = generate_batch(TABLE, requests, drafter=case.make(TABLE), **OWN)
    for request, generation in zip(requests, together, strict=True):
        assert_same(generation, alone(TABLE, request, drafter=case.make(TABLE)))
    assert len({generation.finish_reason for generation in together}) > 2


def test_generate_is_a_batch_of_one() -> None:
    drafter = DraftModel(TabularModel.random(4, 2, seed=2))
    options: dict[str, Any] = {**OWN, "sampling": SAMPLINGS[1], "seed": 3, "max_new_tokens": 20}
    (generation,) = generate_batch(TABLE, [[1, 2]], drafter=drafter, **options)
    assert_same(generation, generate(TABLE, [1, 2], drafter=drafter, **options))


def llama() -> TorchModel:
    return TorchModel(tiny.llama())


def other_llama() -> TorchModel:
    return TorchModel(tiny.llama(seed=1))


TORCH_DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "none": NoDrafter,
    "lookup": PromptLookup,
    "draft model": lambda: DraftModel(other_llama()),
    "tree": lambda: TreeDraftModel(other_llama(), DynamicTree(6, width=2, depth=3)),
    "drawn tree": lambda: TreeDraftModel(other_llama(), StaticTree.branching(2, 2), sampled=True),
}


@pytest.mark.parametrize("drafter", TORCH_DRAFTERS.values(), ids=TORCH_DRAFTERS)
def test_eight_rows_of_a_transformer_are_each_as_alone(drafter: Callable[[], Drafter]) -> None:
    target = llama()
    requests = [varied(seed, tiny.VOCAB_SIZE) for seed in range(8)]
    together = generate_batch(target, requests, drafter=drafter(), **OWN)
    for request, generation in zip(requests, together, strict=True):
        assert generation.token_ids == alone(target, request, drafter=drafter()).token_ids


class Crowd:
    """Rows that join and leave at random."""

    def __init__(self, target: LanguageModel, batch: Batch, seed: int) -> None:
        self._target = target
        self._batch = batch
        self._rng = np.random.default_rng(seed)
        self._seeds = iter(range(1000 * seed, 1000 * seed + 1000))
        self._running: dict[int, tuple[Request, list[Step]]] = {}
        self.num_removed = 0

    def turn(self) -> Iterator[tuple[Request, Generation]]:
        """Some leave, some join, all take a step; those that are finished."""
        for row in list(self._running):
            if self._rng.random() < 0.02:
                self._batch.remove(row)
                del self._running[row]
                self.num_removed += 1
        while self._batch.free_rows and self._rng.random() < 0.6:
            request = varied(next(self._seeds), self._target.vocab_size, most=25)
            (row,) = self._batch.add(request.sequence(self._target))
            self._running[row] = request, []
        for done in self._batch.step():
            request, steps = self._running[done.row]
            steps.append(done)
            if done.finish_reason:
                del self._running[done.row]
                yield request, Generation.of(steps, len(request.prompt))


CROWDS: dict[str, tuple[Callable[[], LanguageModel], Callable[[], Drafter]]] = {
    "table": (lambda: TARGET, lambda: DraftModel(TabularModel.random(4, 2, seed=2))),
    "table with trees": (lambda: TARGET, lambda: TreeDraftModel(TabularModel.random(4, 2, seed=2))),
    "transformer": (llama, lambda: DraftModel(other_llama())),
    "transformer with lookup": (llama, PromptLookup),
}


@pytest.mark.parametrize(("make", "drafter"), CROWDS.values(), ids=CROWDS)
def test_joining_and_leaving_at_random(
    make: Callable[[], LanguageModel], drafter: Callable[[], Drafter]
) -> None:
    target = make()
    finished: list[tuple[Request, Generation]] = []
    with Batch(target, 4, 60, drafter=drafter(), **OWN) as batch:
        crowd = Crowd(target, batch, seed=1)
        for _ in range(200):
            finished += crowd.turn()
    assert len(finished) > 40
    assert crowd.num_removed > 5
    for request, generation in finished:
        assert generation.token_ids == alone(target, request, drafter=drafter()).token_ids


class Counted(TabularModel):
    """Counts the tokens that it reads."""

    def open(self, *args: Any, **options: Any) -> ContextState:
        state = super().open(*args, **options)
        read = state.forward

        def forward(token_ids: Sequence[Sequence[int]], *args: Any) -> Any:
            self.num_read += sum(map(len, token_ids))
            return read(token_ids, *args)

        state.forward = forward  # type: ignore[assignment, method-assign]
        self.num_read = 0
        return state


def test_samples_share_one_reading_of_the_prompt() -> None:
    target = Counted(TARGET.table)
    samples = generate_samples(target, [1] * 100, 5, sampling=SAMPLINGS[1], max_new_tokens=4, seed=0)
    assert target.num_read == 99 + sum(done.num_fed for each in samples for done in each.steps[1:])
    assert [each.steps[0].num_fed for each in samples] == [99] * 5
    assert all(each.steps[1].num_fed == 1 for each in samples)


@pytest.mark.parametrize("max_rows", [2, 8])
@pytest.mark.parametrize("prompt", [[2], [1, 2, 3, 0, 1, 2]])
def test_a_sample_is_the_generation_of_its_seed(max_rows: int, prompt: list[int]) -> None:
    drafter = DraftModel(TabularModel.random(4, 2, seed=2))
    options: dict[str, Any] = {**OWN, "drafter": drafter, "sampling": SAMPLINGS[1], "max_new_tokens": 30}
    samples = generate_samples(TABLE, prompt, 5, max_rows=max_rows, seed=7, **options)
    for number, sample in enumerate(samples):
        assert sample.token_ids == generate(TABLE, prompt, seed=7 + number, **options).token_ids
    assert len({sample.token_ids for sample in samples}) > 2


def test_a_sample_of_a_transformer_is_the_generation_of_its_seed() -> None:
    target, drafter = llama(), DraftModel(other_llama())
    options: dict[str, Any] = {**OWN, "drafter": drafter, "sampling": SAMPLINGS[1], "max_new_tokens": 20}
    prompt = list(range(40))
    samples = generate_samples(target, prompt, 3, seed=7, **options)
    for number, sample in enumerate(samples):
        assert sample.token_ids == generate(target, prompt, seed=7 + number, **options).token_ids


PAIRS = 2000


def law_of_pairs(seed_of: Callable[[int], int]) -> float:
    """The chance of counts as far from the law of two independent samples of two tokens as those seen."""
    law = law_of_target(SMALL, (1, 0), 2, SAMPLINGS[1] or SamplingParams())
    drafter = DraftModel(TabularModel.random(3, 1, seed=5))
    counts: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for number in range(PAIRS // 4):
        samples = generate_samples(
            SMALL, [1, 0], 8, drafter=drafter, sampling=SAMPLINGS[1], max_new_tokens=2, seed=8 * number, **OWN
        )
        for first, second in ((0, 1), (2, 3), (4, 5), (6, 7)):
            counts[samples[seed_of(first)].token_ids, samples[seed_of(second)].token_ids] += 1
    pairs = [(one, other) for one in law for other in law]
    expected = [PAIRS * law[one] * law[other] for one, other in pairs]
    p_value: float = chisquare([counts[pair] for pair in pairs], expected).pvalue
    return p_value


SMALL = TabularModel.random(3, 2, seed=4)


def test_samples_are_independent_and_each_has_the_targets_law() -> None:
    assert law_of_pairs(lambda number: number) > 1e-3


def test_samples_that_repeat_each_other_are_seen() -> None:
    assert law_of_pairs(lambda number: number // 2 * 2) < 1e-9


def test_samples_without_a_seed_differ() -> None:
    samples = generate_samples(TABLE, [1, 2], 4, sampling=SAMPLINGS[1], max_new_tokens=30, ignore_eos=True)
    assert len({sample.token_ids for sample in samples}) == 4


def test_more_prompts_than_rows_come_in_order() -> None:
    prompts = [[number % 4, 1] for number in range(11)]
    together = generate_batch(TARGET, prompts, max_rows=3, max_new_tokens=5)
    assert [each.token_ids for each in together] == [
        generate(TARGET, prompt, max_new_tokens=5).token_ids for prompt in prompts
    ]
    assert generate_batch(TARGET, []) == []


def test_a_row_serves_the_next_prompt_as_soon_as_it_is_free() -> None:
    """Three rows, one of them long: the short ones do not wait for it."""
    sequences = [
        [Request([1], max_new_tokens=budget, ignore_eos=True).sequence(TARGET)] for budget in (30, 2, 2, 2, 2)
    ]
    finished = [number for number, _ in run_batch(TARGET, sequences, max_rows=3)]
    assert finished == [1, 2, 3, 4, 0]


def test_groups_and_single_sequences_go_together() -> None:
    single, group = (Request(prompt, seed=5, sampling=SAMPLINGS[1]) for prompt in ([1], [2, 1]))
    groups = [
        [each.sequence(TARGET) for each in requests]
        for requests in ([single], group.samples(3), [single], group.samples(7))
    ]
    finished = dict(run_batch(TARGET, groups, max_rows=4))
    assert [len(finished[number]) for number in range(4)] == [1, 3, 1, 7]
    for number, sample in enumerate(finished[3]):
        expected = generate(TARGET, [2, 1], seed=5 + number, sampling=SAMPLINGS[1])
        assert sample.token_ids == expected.token_ids


def test_a_removed_row_is_free_and_forgotten() -> None:
    with Batch(TARGET, 2, 50, drafter=PromptLookup(), **OWN) as batch:
        assert batch.is_idle
        assert (batch.add(), batch.step()) == ((), [])
        first, second = (batch.add(Request([1, 2], max_new_tokens=9).sequence(TARGET))[0] for _ in range(2))
        assert (first, second, batch.free_rows) == (0, 1, ())
        batch.step()
        batch.remove(0)
        assert batch.free_rows == (0,)
        assert {done.row for done in batch.step()} == {1}
        assert batch.add(Request([3], max_new_tokens=1).sequence(TARGET)) == (0,)
        finished = [done for done in batch.step() if done.row == 0]
        assert finished[0].emitted == generate(TARGET, [3], max_new_tokens=1).token_ids
        assert finished[0].finish_reason == FinishReason.LENGTH


def test_a_removed_sample_does_not_harm_the_others() -> None:
    request = Request([1, 2, 3, 1], sampling=SAMPLINGS[1], max_new_tokens=9, seed=2)
    expected = [generate(TARGET, request.prompt, sampling=SAMPLINGS[1], max_new_tokens=9, seed=4).token_ids]
    with Batch(TARGET, 3, 50) as batch:
        batch.add(*(each.sequence(TARGET) for each in request.samples(3)))
        batch.remove(0)
        batch.remove(1)
        steps = [done for _ in range(10) for done in batch.step()]
    assert {done.row for done in steps} == {2}
    assert [tuple(token for done in steps for token in done.emitted)] == expected


def test_each_row_learns_for_itself_how_many_tokens_pay() -> None:
    """With "auto" and a seed: also the drafts are those of the row alone."""
    drafter = DraftModel(TabularModel.random(4, 2, seed=2))
    requests = [replace(varied(seed, 4), max_new_tokens=60, stop_token_ids=()) for seed in range(5)]
    together = generate_batch(TARGET, requests, drafter=drafter, num_draft_tokens="auto")
    for request, generation in zip(requests, together, strict=True):
        assert_same(generation, alone(TARGET, request, drafter=drafter, num_draft_tokens="auto"))


def test_a_controller_decides_for_all_rows() -> None:
    together = generate_batch(
        TARGET, [[1], [2]], drafter=DraftModel(TARGET), num_draft_tokens=Fixed(3), max_new_tokens=8
    )
    assert [len(done.drafted) for each in together for done in each.steps] == [3, 3, 3, 3]


def finished(request: Request) -> Row:
    """The sequence of a request, generated."""
    sequence = request.sequence(TARGET)
    with Batch(TARGET, 1, 50) as batch:
        batch.add(sequence)
        while not batch.is_idle:
            batch.step()
    return sequence


ONE = Request([1], max_new_tokens=2).sequence(TARGET)
REFUSED: dict[str, tuple[type[DraftwiseError], str, Callable[[Batch], object]]] = {
    "no room": (
        OptionError,
        "3 sequences do not fit in the 2 free rows of a batch of 2",
        lambda batch: batch.add(*[Request([1], max_new_tokens=2).sequence(TARGET) for _ in range(3)]),
    ),
    "several prompts": (
        OptionError,
        "share one prompt",
        lambda batch: batch.add(*[Request([prompt], max_new_tokens=2).sequence(TARGET) for prompt in (1, 2)]),
    ),
    "too long": (
        PromptError,
        "the prompt has 1 tokens and max_new_tokens is 50, but a row of this batch holds 50",
        lambda batch: batch.add(Request([1], max_new_tokens=50).sequence(TARGET)),
    ),
    "the same one twice": (OptionError, "generated once, in one row", lambda batch: batch.add(*[ONE] * 2)),
    "a finished one": (
        OptionError,
        "generated once, in one row",
        lambda batch: batch.add(finished(Request([1], max_new_tokens=2))),
    ),
    "no such row": (OptionError, "row is 7; give one of this batch, from 0 to 1", lambda b: b.remove(7)),
    "a negative row": (OptionError, "row is -1; give one of this batch", lambda batch: batch.remove(-1)),
    "no length": (OptionError, "max_length is 0; give at least 1", lambda batch: Batch(TARGET, 1, 0)),
    "no rows": (OptionError, "num_rows is 0", lambda batch: Batch(TARGET, 0, 50)),
    "no samples": (OptionError, "num_samples is 0", lambda batch: generate_samples(TARGET, [1], 0)),
    "no rows for prompts": (
        OptionError,
        "max_rows is 0",
        lambda batch: generate_batch(TARGET, [[1]], max_rows=0),
    ),
    "a class of controllers": (
        OptionError,
        'num_draft_tokens is <class .*Fixed\'>; give "auto" or a number',
        lambda batch: Batch(TARGET, 1, 50, drafter=PromptLookup(), num_draft_tokens=Fixed),  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize(("error", "message", "call"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(
    error: type[DraftwiseError], message: str, call: Callable[[Batch], object]
) -> None:
    with Batch(TARGET, 2, 50) as batch:
        with pytest.raises(error, match=message):
            call(batch)
        assert batch.is_idle


def test_a_sequence_under_way_takes_no_second_row() -> None:
    sequence = Request([1], max_new_tokens=9).sequence(TARGET)
    with Batch(TARGET, 2, 50) as batch:
        batch.add(sequence)
        batch.step()
        with pytest.raises(OptionError, match="generated once, in one row"):
            batch.add(sequence)
        assert batch.free_rows == (1,)
        batch.remove(0)
        with pytest.raises(OptionError, match="generated once, in one row"):
            batch.add(sequence)


def test_a_batch_steps_inside_its_context_alone() -> None:
    batch = Batch(TARGET, 1, 50, drafter=PromptLookup(), **OWN)
    batch.add(Request([1, 2], max_new_tokens=5).sequence(TARGET))
    with pytest.raises(OptionError, match="not open; let it step inside of its `with` block"):
        batch.step()
    with batch:  # what was added before it was opened is not lost
        assert batch.step()[0].emitted == generate(TARGET, [1, 2], max_new_tokens=1).token_ids
    with pytest.raises(OptionError, match="not open"):
        batch.step()


def test_samples_share_one_reading_of_an_encoders_input() -> None:
    target = EncoderDecoderModel(tiny_seq2seq.ENCODER_DECODERS["t5"]())
    options: dict[str, Any] = {"sampling": SAMPLINGS[1], "max_new_tokens": 8, "ignore_eos": True}
    source = list(range(5, 25))
    read = target.encoder.read
    with patch.object(target.encoder, "read", side_effect=read) as reads:
        samples = generate_samples(target, source, 3, seed=7, **options)
    assert reads.call_count == 1
    for number, sample in enumerate(samples):
        assert sample.token_ids == generate(target, source, seed=7 + number, **options).token_ids
