"""Recurrent and hybrid models in the loop: the output is that of transformers, whatever drafts."""

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import PreTrainedModel

from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.drafters.none import NoDrafter
from draftwise.drafters.prompt_lookup import PromptLookup
from draftwise.drafters.tree import TreeDraftModel
from draftwise.errors import UnsupportedError
from draftwise.models.torch import RecurrentModel, TorchModel
from draftwise.sampling import SamplingParams
from draftwise.types import Generation
from draftwise.verification import RULES
from tests.fakes import GuessingDrafter
from tests.models import tiny
from tests.models.tiny import one_thread  # noqa: F401
from tests.models.tiny_recurrent import ONE_BY_ONE, RECURRENT
from tests.test_greedy_equality import MAX_NEW_TOKENS, PROMPT, greedy_search, misreader
from tests.test_joint_law import without_residual

ALL = {**RECURRENT, **ONE_BY_ONE}


class Pair:
    """A target and a draft model of one architecture, and what transformers makes of the prompt."""

    def __init__(self, architecture: str) -> None:
        self.model: PreTrainedModel = ALL[architecture]()
        self.target = RecurrentModel(self.model)
        self.draft = RecurrentModel(ALL[architecture](seed=1))
        self.expected = greedy_search(self.model, PROMPT)


@pytest.fixture(scope="module", params=ALL)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


DRAFTERS: dict[str, Callable[[Pair], Drafter]] = {
    "none": lambda pair: NoDrafter(),
    "mixed": lambda pair: GuessingDrafter(misreader([*PROMPT, *pair.expected], lambda at: at % 5 != 3)),
    "draft model": lambda pair: DraftModel(pair.draft),
    "itself": lambda pair: DraftModel(pair.target),
    "itself with lookup": lambda pair: DraftModel(pair.target, drafter=PromptLookup()),
    "of attention": lambda pair: DraftModel(TorchModel(tiny.llama())),
    "lookup": lambda pair: PromptLookup(),
}


def drafted(pair: Pair, drafter: str, num_draft_tokens: int) -> Generation:
    generation = generate(
        pair.target,
        PROMPT,
        drafter=DRAFTERS[drafter](pair),
        max_new_tokens=MAX_NEW_TOKENS,
        num_draft_tokens=num_draft_tokens,
    )
    assert generation.token_ids == pair.expected
    return generation


@pytest.mark.parametrize("drafter", ["none", "mixed", "draft model", "itself"])
def test_output_is_that_of_transformers(pair: Pair, drafter: str) -> None:
    generation = drafted(pair, drafter, 4)
    if drafter == "itself":
        assert generation.target_passes == MAX_NEW_TOKENS // 5
    if drafter == "mixed":
        assert MAX_NEW_TOKENS // 5 <= generation.target_passes < MAX_NEW_TOKENS * 2 // 3


# What depends on the drafter and on how far it goes, and not on the architecture.
@pytest.mark.parametrize("pair", ["lfm2"], indirect=True)
@pytest.mark.parametrize("num_draft_tokens", [1, 7])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_output_does_not_depend_on_what_drafts(pair: Pair, drafter: str, num_draft_tokens: int) -> None:
    generation = drafted(pair, drafter, num_draft_tokens)
    if drafter == "itself":
        assert generation.target_passes == -(-MAX_NEW_TOKENS // (num_draft_tokens + 1))


def test_the_texts_are_not_one_token_over_and_over(pair: Pair) -> None:
    assert len(set(pair.expected)) > 8


def test_a_recurrent_model_drafts_for_one_of_attention() -> None:
    model = tiny.llama()
    generation = generate(
        TorchModel(model),
        PROMPT,
        drafter=DraftModel(RecurrentModel(RECURRENT["mamba2"]())),
        max_new_tokens=MAX_NEW_TOKENS,
        num_draft_tokens=3,
    )
    assert generation.token_ids == greedy_search(model, PROMPT)


def test_trees_are_refused_by_name() -> None:
    recurrent, llama = RecurrentModel(RECURRENT["lfm2"](), name="tiny"), TorchModel(tiny.llama())
    for target, drafts in ((recurrent, llama), (llama, recurrent)):
        with pytest.raises(UnsupportedError, match="tiny cannot score trees"):
            TreeDraftModel(drafts).open(target, 1, 50)


VOCAB_SIZE, NUM_RUNS = 4, 200


def small(seed: int, sureness: float) -> RecurrentModel:
    """Of few tokens. `sureness`: by which its logits are multiplied."""
    model = RECURRENT["lfm2"](seed=seed, vocab_size=VOCAB_SIZE)
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach() * sureness)
    return RecurrentModel(model)


def p_value() -> float:
    """How likely counts of three tokens, at least this far from the target's law, are under that law."""
    target, prompt, drafter = small(0, 0.3), (1, 2, 3, 2), DraftModel(small(1, 4))
    law = {}
    for text in product(range(VOCAB_SIZE), repeat=3):
        with torch.inference_mode():
            logits = target.model(input_ids=torch.tensor([[*prompt, *text]]), use_cache=False).logits[0]
        probs = logits[len(prompt) - 1 : -1].double().softmax(-1)
        law[text] = float(np.prod([probs[at, token_id] for at, token_id in enumerate(text)]))
    counts = Counter(
        generate(
            target,
            prompt,
            drafter=drafter,
            sampling=SamplingParams(1.0),
            max_new_tokens=3,
            num_draft_tokens=2,
            seed=seed,
        ).token_ids
        for seed in range(NUM_RUNS)
    )
    # Rare texts count as one, so that there are enough of each for the approximation to hold.
    rare = [text for text, probability in law.items() if probability * NUM_RUNS < 5]
    often = [text for text in law if text not in rare]
    observed = [*(counts[text] for text in often), sum(counts[text] for text in rare)]
    expected = [*(law[text] for text in often), sum(law[text] for text in rare)]
    return float(chisquare(observed, NUM_RUNS * np.array(expected)).pvalue)


def test_counts_agree_with_the_law_of_the_target() -> None:
    assert p_value() > 1e-4


def test_a_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "auto", without_residual)
    assert p_value() < 1e-6
