"""SmolLM2 on the ONNX engine: speculative output is plain output token for token, logits bit for bit."""

from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest

from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.ngram import NgramModel
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.models.base import LanguageModel
from draftwise.models.load import load
from draftwise.models.onnx.engine import OnnxModel
from draftwise.prompt import encode_prompt
from draftwise.sampling import SamplingParams
from draftwise.types import Generation

PASSAGE = (
    "The lighthouse keeper counted the ships that passed each evening and wrote their names in a green book. "
    "When the storm of 1911 broke the lantern, he lit a fire on the gallery and kept it burning until dawn."
)
CODE = (
    "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n"
    "    return total / len(values)\n"
)
PROMPTS = [
    f"Repeat this text exactly:\n\n{PASSAGE}",
    f"Summarise in one sentence:\n\n{PASSAGE}",
    f"Rewrite this in the present tense:\n\n{PASSAGE}",
    f"Who is this text about?\n\n{PASSAGE}",
    f"Copy this function and rename it to average:\n\n{CODE}",
    f"Add a docstring to this function:\n\n{CODE}",
    f"Explain this function:\n\n{CODE}",
    f"Write a test for this function:\n\n{CODE}",
    "Count from one to forty.",
    "List the months of the year, then list them again.",
    "What is the capital of Portugal?",
    "Write a short poem about rain.",
    "Tell me a story about a fox and a well.",
    "How many legs have three spiders and two cats?",
    "Translate into French: the book is on the table.",
    "Give me five names for a bakery.",
    "Why is the sky blue?",
    "Write a SQL query that counts the users of each country.",
    "purple seven quickly ladder of the and blink 42 ##",
    "Say nothing but the word yes, many times.",
]
MAX_NEW_TOKENS = 128

DRAFTERS: dict[str, tuple[Callable[[LanguageModel], Drafter], tuple[int, ...]]] = {
    "lookup": (lambda target: PromptLookup(), (1, 4, 11)),
    "ngram": (lambda target: DraftModel(passage_trigrams(target)), (2,)),
    "draft model": (DraftModel, (3,)),  # the target as its own draft model, in passes of width 1
}


def passage_trigrams(target: LanguageModel) -> NgramModel:
    assert target.tokenizer
    sequences = [target.tokenizer.encode(text) for text in (PASSAGE, CODE)]
    return NgramModel.count(sequences, target.vocab_size, 3, tokenizer=target.tokenizer)


@pytest.fixture(scope="module", params=["int8", "float32"])
def model(request: pytest.FixtureRequest) -> OnnxModel:
    loaded = load("smollm2-135m-instruct", engine="onnx", dtype=request.param)
    assert isinstance(loaded, OnnxModel)
    return loaded


def answer(model: LanguageModel, prompt: str, drafter: Drafter | None, **options: object) -> Generation:
    messages = [{"role": "user", "content": prompt}]
    return generate(model, messages, drafter=drafter, max_new_tokens=MAX_NEW_TOKENS, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain(model: LanguageModel) -> list[Generation]:
    return [answer(model, prompt, None) for prompt in PROMPTS]


def test_this_machine_gives_the_same_bits_at_every_width(model: LanguageModel) -> None:
    assert model.width_invariant


@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_output_is_that_of_plain_decoding(
    model: OnnxModel, plain: list[Generation], name: str
) -> None:
    make, lengths = DRAFTERS[name]
    drafter = make(model)
    # A float32 pass takes three times as long, and differs in the products alone: one length, one drafter.
    if model.precision == "float32":
        lengths = lengths[-1:] if name == "lookup" else ()
    for num_draft_tokens in lengths:
        accepted = 0
        for prompt, expected in zip(PROMPTS, plain, strict=True):
            got = answer(model, prompt, drafter, num_draft_tokens=num_draft_tokens)
            assert got.token_ids == expected.token_ids, prompt
            assert got.text == expected.text
            accepted += sum(step.num_accepted for step in got.steps)
        assert accepted > 50  # or nothing was tried


def test_logits_have_the_same_bits_after_any_sequence_of_rejections(model: LanguageModel) -> None:
    rng = np.random.default_rng(0)
    token_ids = encode_prompt(model, f"{PASSAGE}\n{CODE}\n" * 4)
    with closing(model.open(1, len(token_ids) + 20)) as state:
        whole = state.forward([token_ids], [len(token_ids)])[0].copy()
        state.keep(0, 0)
        while (held := state.lengths[0]) < len(token_ids):
            # The wide ones leave a lone position in one of attention's blocks, of whatever size.
            right = int(rng.choice([*range(1, 18), 33, 65, 129]))
            wrong = rng.integers(0, model.vocab_size, int(rng.integers(0, 5))).tolist()
            fed = token_ids[held : held + right]
            logits = state.forward([[*fed, *wrong]], [len(fed) + len(wrong)])[0]
            np.testing.assert_array_equal(logits[: len(fed)], whole[held : held + len(fed)])
            # Sometimes part of what was right is taken back too.
            state.keep(0, held + int(rng.integers(1, len(fed) + 1)))


def test_a_seed_repeats(model: LanguageModel) -> None:
    def texts(seed: int) -> list[tuple[int, ...]]:
        sampling = SamplingParams(temperature=0.8, top_p=0.95)
        return [
            answer(model, prompt, PromptLookup(), sampling=sampling, seed=seed).token_ids
            for prompt in PROMPTS[:5]
        ]

    assert texts(11) == texts(11) != texts(12)
