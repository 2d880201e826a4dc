"""In float32 on PyTorch, greedy output is that of transformers itself, whatever drafts and however far."""

from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from draftwise.control.fixed import Fixed
from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.loop import step
from draftwise.models.torch import TorchModel
from draftwise.randomness import Streams
from draftwise.sampling import Sampler, SamplingParams
from draftwise.sequence import Sequence as Row
from draftwise.sequence import StopConditions
from draftwise.types import FinishReason
from tests.fakes import GuessingDrafter
from tests.models import tiny
from tests.models.tiny import one_thread  # noqa: F401

ARCHITECTURES = ["llama", "qwen2", "gpt2", "opt", "gemma2", "gemma3", "mistral", "phi", "gpt_neox", "llama4"]
NUM_DRAFT_TOKENS = [0, 1, 3, 7]
MAX_NEW_TOKENS = 40
PROMPT = [int(token_id) for token_id in np.random.default_rng(1).integers(0, tiny.VOCAB_SIZE, 12)]


class Pair:
    """A target of one architecture, and what transformers' own greedy search makes of the prompt."""

    def __init__(self, architecture: str) -> None:
        self.model: PreTrainedModel = tiny.ARCHITECTURES[architecture]()
        self.target = TorchModel(self.model)
        self.draft = TorchModel(tiny.ARCHITECTURES[architecture](seed=1))
        self.expected = greedy_search(self.model, PROMPT)


def greedy_search(model: PreTrainedModel, prompt: Sequence[int]) -> tuple[int, ...]:
    input_ids = torch.tensor([prompt])
    output = model.generate(
        input_ids,
        attention_mask=torch.ones_like(input_ids),
        do_sample=False,
        max_new_tokens=MAX_NEW_TOKENS,
        pad_token_id=0,
    )
    return tuple(output[0, len(prompt) :].tolist())


@pytest.fixture(scope="module", params=ARCHITECTURES)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


def reader(text: Sequence[int]) -> Callable[[Sequence[int]], Sequence[int]]:
    """Guesses right: it has read the output in advance."""
    return lambda context: text[len(context) :]


def misreader(text: Sequence[int], right: Callable[[int], bool]) -> Callable[[Sequence[int]], Sequence[int]]:
    """Guesses right at the positions named and wrong elsewhere."""
    changed = [
        token_id if right(position) else (token_id + 1) % tiny.VOCAB_SIZE
        for position, token_id in enumerate(text)
    ]
    return reader(changed)


DRAFTERS: dict[str, Callable[[Pair], Drafter]] = {
    "none": lambda pair: NoDrafter(),
    "right": lambda pair: GuessingDrafter(reader([*PROMPT, *pair.expected])),
    "wrong": lambda pair: GuessingDrafter(misreader([*PROMPT, *pair.expected], lambda position: False)),
    "mixed": lambda pair: GuessingDrafter(misreader([*PROMPT, *pair.expected], lambda at: at % 5 != 3)),
    "draft model": lambda pair: DraftModel(pair.draft),
    "itself": lambda pair: DraftModel(pair.target),
    "lookup": lambda pair: PromptLookup(),
    "trigrams": lambda pair: DraftModel(
        NgramModel.count([[*PROMPT, *pair.expected]], tiny.VOCAB_SIZE, order=3)
    ),
}


@pytest.mark.parametrize("num_draft_tokens", NUM_DRAFT_TOKENS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_output_is_that_of_transformers(pair: Pair, drafter: str, num_draft_tokens: int) -> None:
    generation = generate(
        pair.target,
        PROMPT,
        drafter=DRAFTERS[drafter](pair),
        max_new_tokens=MAX_NEW_TOKENS,
        num_draft_tokens=num_draft_tokens,
    )
    assert generation.token_ids == pair.expected
    assert generation.finish_reason is FinishReason.LENGTH
    if drafter == "right":
        assert generation.target_passes == -(-MAX_NEW_TOKENS // (num_draft_tokens + 1))
    if drafter == "wrong":
        assert generation.target_passes == MAX_NEW_TOKENS


def test_the_texts_can_tell_right_from_wrong(pair: Pair) -> None:
    """They are not one token over and over, and no two best logits are so close that rounding decides."""
    assert len(set(pair.expected)) > 10
    text = torch.tensor([[*PROMPT, *pair.expected]])
    with torch.inference_mode():
        best = pair.model(input_ids=text).logits[0].topk(2).values
    assert (best[:, 0] - best[:, 1]).min() > 1e-4
    assert len(text[0]) > 5 * tiny.WINDOW


@pytest.mark.parametrize("num_draft_tokens", NUM_DRAFT_TOKENS)
def test_generation_ends_at_the_same_eos(num_draft_tokens: int) -> None:
    text = greedy_search(tiny.llama(), PROMPT)
    eos = text[25]
    model = tiny.llama(eos_token_id=eos)
    expected = greedy_search(model, PROMPT)
    assert expected == text[: text.index(eos) + 1]
    generation = generate(
        TorchModel(model),
        PROMPT,
        drafter=GuessingDrafter(reader([*PROMPT, *text])),  # it would go on
        max_new_tokens=MAX_NEW_TOKENS,
        num_draft_tokens=num_draft_tokens,
    )
    assert generation.token_ids == expected
    assert generation.finish_reason is FinishReason.EOS


@pytest.mark.parametrize("drafter", ["none", "draft model", "lookup"])
def test_rows_of_a_batch_are_the_same_rows_alone(pair: Pair, drafter: str) -> None:
    """Eight prompts of different lengths and budgets, so that rows advance unevenly and end one by one."""
    rng = np.random.default_rng(2)
    prompts = [
        [int(token_id) for token_id in rng.integers(0, tiny.VOCAB_SIZE, 3 + 4 * row)] for row in range(8)
    ]
    budgets = [5 + 4 * row for row in range(8)]
    alone = [
        greedy_search(pair.model, prompt)[:budget] for prompt, budget in zip(prompts, budgets, strict=True)
    ]

    rows = [
        Row(prompt, StopConditions(budget), Sampler(SamplingParams()), Streams.seeded(row), None)
        for row, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True))
    ]
    max_length = max(len(row.token_ids) + row.budget for row in rows)
    with (
        closing(DRAFTERS[drafter](pair).open(pair.target, len(rows), max_length)) as drafting,
        closing(pair.target.open(len(rows), max_length)) as cache,
    ):
        while not all(row.finish_reason for row in rows):
            step(cache, drafting, Fixed(3), rows)
    together = [tuple(row.token_ids[row.num_prompt_tokens :]) for row in rows]
    assert together == alone
