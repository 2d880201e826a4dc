from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest

from draftwise import decoding
from draftwise.control.fixed import Fixed
from draftwise.decoding import generate, stream
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.none import NoDrafter
from draftwise.errors import DraftwiseError, OptionError, PromptError
from draftwise.loop import step
from draftwise.models.base import Tap
from draftwise.models.context import ContextState
from draftwise.models.tabular import TabularModel
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import StopConditions
from draftwise.types import FinishReason, Generation, Origin, Step
from tests.fakes import GuessingDrafter, PieceTokenizer, SamplingDrafter

PROMPT = [1, 2, 3]
SAMPLED = SamplingParams(1.0)
TARGET = TabularModel.random(5, 2, seed=1)
DRAFTERS: dict[str, Drafter] = {
    "none": NoDrafter(),
    "sampling": SamplingDrafter(TabularModel.random(5, 2, seed=2)),
    "the target itself": SamplingDrafter(TARGET),
    "draft model": DraftModel(TabularModel.random(5, 2, seed=2)),
    "guessing": GuessingDrafter(lambda context: [(context[-1] + n) % 5 for n in range(1, 9)]),
}
every_drafter = pytest.mark.parametrize("drafter", DRAFTERS.values(), ids=DRAFTERS)


class WatchedModel(TabularModel):
    """Keeps the states it opened, and forgets those that were closed."""

    open_states: int = 0

    def open(
        self, num_sequences: int, max_length: int, *, width_invariant: bool = True, taps: Sequence[Tap] = ()
    ) -> ContextState:
        self.open_states += 1
        state = super().open(num_sequences, max_length)

        def close() -> None:
            self.open_states -= 1

        state.close = close  # type: ignore[method-assign]
        return state


def tokens_of(steps: Sequence[Step]) -> list[int]:
    return [token_id for step in steps for token_id in step.emitted]


@every_drafter
@pytest.mark.parametrize("num_draft_tokens", [0, 1, 3, 8])
def test_greedy_output_is_that_of_plain_decoding(drafter: Drafter, num_draft_tokens: int) -> None:
    plain = generate(TARGET, PROMPT, max_new_tokens=40)
    result = generate(TARGET, PROMPT, drafter=drafter, max_new_tokens=40, num_draft_tokens=num_draft_tokens)
    assert result.token_ids == plain.token_ids
    assert len(result.token_ids) == 40


def test_greedy_decoding_follows_the_argmax() -> None:
    context = list(PROMPT)
    for token_id in generate(TARGET, PROMPT, max_new_tokens=10).token_ids:
        assert token_id == TARGET.logits_after(context).argmax()
        context.append(token_id)


@every_drafter
def test_the_same_seed_gives_the_same_tokens(drafter: Drafter) -> None:
    def run(seed: int) -> Generation:
        return generate(
            TARGET,
            PROMPT,
            drafter=drafter,
            num_draft_tokens=None,
            sampling=SAMPLED,
            max_new_tokens=50,
            seed=seed,
        )

    assert run(3).token_ids == run(3).token_ids
    assert [step.drafted for step in run(3).steps] == [step.drafted for step in run(3).steps]
    assert run(3).token_ids != run(4).token_ids


@every_drafter
def test_the_record_of_a_generation_adds_up(drafter: Drafter) -> None:
    result = generate(
        TARGET,
        PROMPT,
        drafter=drafter,
        sampling=SAMPLED,
        max_new_tokens=50,
        num_draft_tokens=4,
        seed=0,
    )
    assert result.finish_reason == FinishReason.LENGTH
    assert result.num_prompt_tokens == 3
    assert list(result.token_ids) == tokens_of(result.steps)
    left = 50
    for number, done in enumerate(result.steps):
        assert len(done.drafted) <= min(4, left - 1)
        assert done.emitted[:-1] == done.drafted[: done.num_accepted]
        assert done.num_fed == len(done.drafted) + (3 if number == 0 else 1)
        own = Origin.BONUS if done.num_accepted == len(done.drafted) else Origin.RECOVERED
        assert done.origins == (*[Origin.ACCEPTED] * done.num_accepted, own)
        left -= len(done.emitted)
    assert left == 0
    assert result.target_passes == len(result.steps)
    assert result.mean_acceptance_length == 50 / len(result.steps)
    accepted = sum(done.num_accepted for done in result.steps)
    rejected = sum(done.num_accepted < len(done.drafted) for done in result.steps)
    rate = accepted / (accepted + rejected) if accepted + rejected else None
    assert result.acceptance_rate == rate


def test_a_perfect_drafter_is_never_rejected() -> None:
    result = generate(
        TARGET,
        PROMPT,
        drafter=DRAFTERS["the target itself"],
        num_draft_tokens=None,
        sampling=SAMPLED,
        max_new_tokens=30,
    )
    assert result.acceptance_rate == 1
    assert result.mean_acceptance_length == 3  # γ of 2, and the bonus token


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("how", ["eos", "stop token", "stop string", "budget"])
def test_a_stop_inside_a_draft(at: int, how: str) -> None:
    """At each position of a whole accepted draft of four, and at the bonus token after it."""
    letters = PieceTokenizer([bytes([letter]) for letter in b"abcdefgh"])
    ending = frozenset([at + 1]) if how == "eos" else frozenset()
    counting = TabularModel(10 * np.eye(8)[(np.arange(8) + 1) % 8], tokenizer=letters, eos_token_ids=ending)
    options: dict[str, dict[str, Any]] = {
        "eos": {},
        "stop token": {"stop_token_ids": [at + 1]},
        "stop string": {"stop": "abcdefgh"[at : at + 2] if at else "b"},
        "budget": {"max_new_tokens": at + 1},
    }
    drafter = GuessingDrafter(lambda context: [context[-1] + n for n in range(1, 5)])
    result = generate(counting, "a", drafter=drafter, num_draft_tokens=4, **options[how])
    (only,) = result.steps
    assert result.token_ids == only.emitted == tuple(range(1, at + 2))
    assert len(only.pieces) == len(only.emitted) == len(only.origins)
    text = {"eos": "bcdefg"[:at], "stop token": "bcdefg"[:at], "budget": "bcdefg"[: at + 1]}
    assert result.text == text.get(how, "bcdefg"[: max(at - 1, 0)])
    assert (
        result.finish_reason
        == {
            "eos": FinishReason.EOS,
            "stop token": FinishReason.STOP_TOKEN,
            "stop string": FinishReason.STOP_STRING,
            "budget": FinishReason.LENGTH,
        }[how]
    )


def test_eos_can_be_ignored() -> None:
    ending = TabularModel.random(5, 2, seed=1, eos_token_ids=range(5))
    assert generate(ending, PROMPT, max_new_tokens=7).finish_reason == FinishReason.EOS
    ignoring = generate(ending, PROMPT, max_new_tokens=7, ignore_eos=True)
    assert (ignoring.finish_reason, len(ignoring.token_ids)) == (FinishReason.LENGTH, 7)


def new_row(
    prompt: Sequence[int], seed: int, sampling: SamplingParams, max_new_tokens: int
) -> decoding.Sequence:
    conditions = StopConditions(max_new_tokens, stop_token_ids=frozenset([4]))
    return decoding.Sequence(prompt, conditions, Sampler(sampling), Streams.seeded(seed), None)


def run_rows(rows: list[decoding.Sequence], drafter: Drafter) -> list[list[int]]:
    """Step all rows together until they are finished, and check what the cache holds after each step."""
    drafting, cache = drafter.open(TARGET, len(rows), 60), TARGET.open(len(rows), 60)
    while not all(row.finish_reason for row in rows):
        unfinished = [index for index, row in enumerate(rows) if not row.finish_reason]
        steps = step(cache, drafting, Fixed(3), rows)
        assert [done.row for done in steps] == unfinished
        assert cache.lengths == [len(row.token_ids) - 1 for row in rows]
    following = cache.forward([row.token_ids[-1:] for row in rows], [1] * len(rows))
    for row, logits in zip(rows, following, strict=True):
        np.testing.assert_array_equal(logits[0], TARGET.logits_after(row.token_ids))
    return [row.token_ids for row in rows]


@every_drafter
@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED], ids=["greedy", "sampled"])
def test_rows_together_are_the_same_rows_alone(drafter: Drafter, sampling: SamplingParams) -> None:
    """Rows of different lengths, budgets and seeds, each of which ends at another time."""
    settings = [([1, 2, 3], 0, 5), ([2], 1, 30), ([3, 1, 0, 2, 2, 1], 2, 17), ([0, 0], 3, 1)]

    def rows() -> list[decoding.Sequence]:
        return [new_row(prompt, seed, sampling, budget) for prompt, seed, budget in settings]

    together = run_rows(rows(), drafter)
    alone = [run_rows([row], drafter)[0] for row in rows()]
    assert together == alone
    assert len({len(row) for row in together}) > 1


def test_rows_may_have_different_settings() -> None:
    greedy, sampled = (new_row(PROMPT, 5, sampling, 20) for sampling in (SamplingParams(), SAMPLED))
    together = run_rows([greedy, sampled], DRAFTERS["draft model"])
    settings = (SamplingParams(), SAMPLED)
    alone = [run_rows([new_row(PROMPT, 5, s, 20)], DRAFTERS["draft model"])[0] for s in settings]
    assert together == alone


@every_drafter
def test_two_interleaved_generations_do_not_touch_each_other(drafter: Drafter) -> None:
    def start(seed: int) -> Iterator[Step]:
        return stream(
            TARGET,
            PROMPT,
            drafter=drafter,
            num_draft_tokens=None,
            sampling=SAMPLED,
            max_new_tokens=20,
            seed=seed,
        )

    alone = [tokens_of([*start(seed)]) for seed in (0, 1)]
    pairs = [*zip_longest(start(0), start(1))]
    together = [tokens_of([done for done in steps if done]) for steps in zip(*pairs, strict=True)]
    assert together == alone


def test_closing_a_stream_midway_leaves_everything_reusable() -> None:
    target, draft = (WatchedModel(TabularModel.random(5, 2, seed).table) for seed in (1, 2))
    drafter = DraftModel(draft)
    whole = generate(target, PROMPT, drafter=drafter, num_draft_tokens=None, max_new_tokens=20)
    running = stream(target, PROMPT, drafter=drafter, num_draft_tokens=None, max_new_tokens=20)
    first = [next(running), next(running)]
    assert (target.open_states, draft.open_states) == (1, 1)
    running.close()
    assert (target.open_states, draft.open_states) == (0, 0)
    assert list(running) == []
    assert list(whole.token_ids[:2]) == tokens_of(first)[:2]
    assert (
        generate(target, PROMPT, drafter=drafter, num_draft_tokens=None, max_new_tokens=20).token_ids
        == whole.token_ids
    )
    assert (target.open_states, draft.open_states) == (0, 0)


def test_a_failure_midway_closes_everything() -> None:
    class Failing(SamplingDrafter):
        def observe(self, step: Step) -> None:
            raise RuntimeError("the drafter failed")

    target = WatchedModel(TARGET.table)
    with pytest.raises(RuntimeError, match="the drafter failed") as failure:
        generate(target, PROMPT, drafter=Failing(TARGET), num_draft_tokens=None)
    assert target.open_states == 0
    assert failure.value.__traceback__ is not None


def test_nothing_is_opened_before_the_first_step() -> None:
    target = WatchedModel(TARGET.table)
    stream(target, PROMPT)
    assert target.open_states == 0


def test_text_prompts_and_text_results() -> None:
    letters = PieceTokenizer([b"a", b"b", b"c", b"d", b"e"])
    target = TabularModel.random(5, 2, seed=1, tokenizer=letters)
    result = generate(
        target,
        "bcd",
        drafter=DRAFTERS["sampling"],
        num_draft_tokens=None,
        sampling=SAMPLED,
        max_new_tokens=20,
        seed=0,
    )
    ids = generate(
        target,
        PROMPT,
        drafter=DRAFTERS["sampling"],
        num_draft_tokens=None,
        sampling=SAMPLED,
        max_new_tokens=20,
        seed=0,
    )
    assert result.token_ids == ids.token_ids
    assert result.text == letters.decode(result.token_ids)


def test_any_sequence_of_whole_numbers_is_a_prompt() -> None:
    expected = generate(TARGET, PROMPT, max_new_tokens=5).token_ids
    assert generate(TARGET, tuple(PROMPT), max_new_tokens=5).token_ids == expected
    assert generate(TARGET, np.array(PROMPT), max_new_tokens=5).token_ids == expected


SMALL = TabularModel.random(5, 2, seed=1, max_length=10, name="small")
REFUSED: dict[str, tuple[type[DraftwiseError], str, Callable[[], object]]] = {
    "empty prompt": (PromptError, "the prompt is empty", lambda: stream(TARGET, [])),
    "empty text": (PromptError, "the prompt is empty", lambda: stream(TARGET, "")),
    "text without tokenizer": (PromptError, "tabular has no tokenizer", lambda: stream(TARGET, "hello")),
    "chat without tokenizer": (
        PromptError,
        "tabular has no tokenizer",
        lambda: stream(TARGET, [{"role": "user", "content": "hello"}]),
    ),
    "fractions": (PromptError, "none of text, token ids and chat", lambda: stream(TARGET, [1.5])),  # type: ignore[arg-type]
    "negative id": (PromptError, "token id -1 is outside", lambda: stream(TARGET, [0, -1])),
    "id too large": (PromptError, "token id 5 is outside", lambda: stream(TARGET, [0, 5])),
    "too long": (
        PromptError,
        "the prompt has 6 tokens and max_new_tokens is 5, but small holds at most 10",
        lambda: stream(SMALL, [0] * 6, max_new_tokens=5),
    ),
    "no new tokens": (OptionError, "max_new_tokens is 0", lambda: stream(TARGET, PROMPT, max_new_tokens=0)),
    "negative draft": (
        OptionError,
        "num_draft_tokens is -1; give 0",
        lambda: stream(TARGET, PROMPT, num_draft_tokens=-1),
    ),
    "stop without tokenizer": (OptionError, "stop strings need", lambda: stream(TARGET, PROMPT, stop="a")),
    "negative seed": (OptionError, "seed is -1", lambda: stream(TARGET, PROMPT, seed=-1)),
}


@pytest.mark.parametrize(("error", "message", "call"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_before_the_first_step(
    error: type[DraftwiseError], message: str, call: Callable[[], object]
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_prompt_that_just_fits() -> None:
    result = generate(SMALL, [0] * 6, drafter=DRAFTERS["draft model"], max_new_tokens=4, num_draft_tokens=8)
    assert len(result.token_ids) == 4
