"""The paper's measurements on a target and drafters at hand: acceptance, lenience, one run step by step."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from draftwise.decoding import generate
from draftwise.drafters.base import Drafter
from draftwise.drafters.draft_model import DraftModel
from draftwise.models.base import LanguageModel
from draftwise.paper.published import LENIENCES
from draftwise.planning.acceptance import Acceptance
from draftwise.planning.measure import Text, scored, traces, write_text
from draftwise.sampling import SamplingParams, adjusted_probs
from draftwise.theory import acceptance_rate
from draftwise.types import Logits, Origin, Step

Progress = Callable[[str, float], None]
GREEDY, SAMPLED = SamplingParams(), SamplingParams(1.0)


@dataclass(frozen=True, slots=True)
class Overlap:
    """α of a drafter on the target's own text (Table 3): the mean of Σ min(p, q) over its positions.

    `coverage`: the share of positions where the drafter has a guess; α is the mean over those.
    """

    drafter: str
    temperature: float
    alpha: float | None
    coverage: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Lenience:
    """α of a draft model by lenience, in the order of LENIENCES (Table 5)."""

    drafter: str
    temperature: float
    alphas: tuple[float, ...]
    tokens: int


def write_texts(
    target: LanguageModel,
    prompts: Sequence[tuple[str, Sequence[int]]],
    sampling: SamplingParams,
    num_tokens: int,
    max_new_tokens: int,
    progress: Progress,
) -> list[Text]:
    """Have the target answer prompts (task, token ids), in turn, until it has written `num_tokens` tokens.

    Fewer where the prompts do not suffice; the last text is not cut.
    """
    texts: list[Text] = []
    written = 0
    for seed, (task, token_ids) in enumerate(prompts):
        if written >= num_tokens:
            break
        text = write_text(
            target, token_ids, task=task, sampling=sampling, max_new_tokens=max_new_tokens, seed=seed
        )
        texts.append(text)
        written += len(text)
        progress(
            f"{target.name} writes at temperature {sampling.temperature:g}", min(1.0, written / num_tokens)
        )
    return texts


def acceptance(
    target: LanguageModel, drafters: Mapping[str, Drafter], texts: Sequence[Text], progress: Progress
) -> list[Overlap]:
    """α of each drafter on texts written under one sampling, under which it is measured."""
    rows = []
    for done, (label, drafter) in enumerate(drafters.items(), start=1):
        found = [traces(target, drafter, text, [text.sampling], max_draft_tokens=1)[0] for text in texts]
        guessed = np.concatenate([~np.isnan(trace.rates) for trace in found])
        temperature = texts[0].sampling.temperature
        alpha = Acceptance.of(found).alpha
        rows.append(Overlap(label, temperature, alpha, float(guessed.mean()), len(guessed)))
        progress(f"acceptance at temperature {temperature:g}", done / len(drafters))
    return rows


def lenience(
    target: LanguageModel, drafters: Mapping[str, Drafter], texts: Sequence[Text], progress: Progress
) -> list[Lenience]:
    """α by lenience of each drafter that is a model, on texts written under one sampling.

    Sampled, it is Σ min(p / l, q). Greedily, lenience comes before the standardisation (A.5): the draft
    model's best token is accepted where p of it is at least l times the largest p.
    """
    models = {label: each.model for label, each in drafters.items() if isinstance(each, DraftModel)}
    rates: dict[str, list[NDArray[np.float64]]] = {label: [] for label in models}
    for done, text in enumerate(texts, start=1):
        of_text = _lenient_greedily if text.sampling.temperature == 0 else _lenient_sampled
        for label, model in models.items():
            size = min(len(text), max(0, model.max_length + 1 - len(text.prompt_ids)))
            both = zip(
                scored(target, text, size), scored(model, text, size, width_invariant=False), strict=True
            )
            rates[label] += [of_text(ours, theirs[: target.vocab_size]) for ours, theirs in both]
        progress("lenience", done / len(texts))
    temperature = texts[0].sampling.temperature
    return [
        Lenience(label, temperature, tuple(np.mean(found, axis=0).tolist()), len(found))
        for label, found in rates.items()
        if found
    ]


def _lenient_sampled(target: Logits, draft: Logits) -> NDArray[np.float64]:
    p, q = adjusted_probs(target, SAMPLED), adjusted_probs(draft, SAMPLED)
    return np.array([acceptance_rate(p, q, lenience) for lenience in LENIENCES])


def _lenient_greedily(target: Logits, draft: Logits) -> NDArray[np.float64]:
    share = np.exp(float(target[int(draft.argmax())]) - float(target.max()))
    return np.array([float(share >= lenience) for lenience in LENIENCES])


def token_by_token(
    steps: Iterable[Step], decode: Callable[[Sequence[int]], str]
) -> list[list[tuple[str, str]]]:
    """Figure 1: the pieces of text of each step, each with its origin, or "rejected" for a guess that was."""
    lines = []
    for step in steps:
        own = list(zip(step.pieces, step.origins, strict=True))
        accepted = [(piece, str(origin)) for piece, origin in own if origin is Origin.ACCEPTED]
        rejected = [
            (decode([token_id]), "rejected")
            for token_id in step.drafted[step.num_accepted : step.num_accepted + 1]
            if len(own) > len(accepted)
        ]
        rest = [(piece, str(origin)) for piece, origin in own if origin is not Origin.ACCEPTED]
        lines.append([*accepted, *rejected, *rest])
    return lines


def run_steps(
    target: LanguageModel,
    prompt_ids: Sequence[int],
    drafter: Drafter,
    num_draft_tokens: int | Literal["auto"] | None,
    max_new_tokens: int,
    sampling: SamplingParams = GREEDY,
) -> tuple[Step, ...]:
    """The steps of one generation with token-wise verification, the paper's Algorithm 1."""
    return generate(
        target,
        prompt_ids,
        drafter=drafter,
        sampling=sampling,
        num_draft_tokens=num_draft_tokens,
        max_new_tokens=max_new_tokens,
        verification="token",
        seed=0,
    ).steps
