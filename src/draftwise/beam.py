"""Beam search, and the same beams in fewer target passes by drafting (2211.17192, A.4)."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import takewhile
from math import inf

import numpy as np
from numpy.typing import NDArray

from draftwise.errors import OptionError, PromptError
from draftwise.models.base import LanguageModel, refuse_encoder
from draftwise.prompt import Prompt, encode_prompt

Tokens = tuple[int, ...]
LogProbs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Beam:
    """A generated sequence and the sum of its tokens' log probabilities."""

    token_ids: Tokens
    log_prob: float


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """The finished sequences, best first, each with its score, and what they cost.

    `scores`: log probability over length to the power of the length penalty.
    """

    beams: tuple[Tokens, ...]
    scores: tuple[float, ...]
    target_passes: int
    positions: int  # that the target scored, the prompt apart


def beam_search(
    target: LanguageModel,
    prompt: Prompt,
    *,
    num_beams: int,
    max_new_tokens: int = 64,
    length_penalty: float = 1.0,
    draft_model: LanguageModel | None = None,
    num_draft_beams: int | None = None,
    num_draft_tokens: int = 4,
) -> BeamSearch:
    """The target's own beam search of width w = `num_beams`, the same with a draft model as without.

    The draft model searches `num_draft_tokens` steps ahead with `num_draft_beams` u beams (None is 2w), and
    one target pass scores all of its beams, w + uγ positions. The search then goes on as far as its w beams
    are among the draft's u. A sequence ends with an end token or after `max_new_tokens`; the search ends as
    transformers' does with `early_stopping=False`. The beams form a tree in one row of the cache, so that the
    engine has to score trees. Raises OptionError and PromptError, and UnsupportedError where it cannot.
    """
    num_draft_beams = 2 * num_beams if num_draft_beams is None else num_draft_beams
    for name, number, least in (
        ("num_beams", num_beams, 1),
        ("max_new_tokens", max_new_tokens, 1),
        ("num_draft_tokens", num_draft_tokens, 0),
        ("num_draft_beams", num_draft_beams, num_beams),
    ):
        if number < least:
            raise OptionError(f"{name} is {number}; give at least {least}.")
    refuse_encoder(target, "beam search")
    prompt_ids = tuple(encode_prompt(target, prompt))
    if len(prompt_ids) + max_new_tokens > target.max_length:
        raise PromptError(
            f"the prompt has {len(prompt_ids)} tokens and max_new_tokens is {max_new_tokens}, but "
            f"{target.name} holds at most {target.max_length} tokens; shorten the prompt or ask for fewer."
        )
    # At worst the beams share nothing but the prompt.
    room = len(prompt_ids) + num_beams * max_new_tokens + num_draft_beams * num_draft_tokens
    search = _Search(num_beams, max_new_tokens, length_penalty, target.eos_token_ids)
    with ExitStack() as stack:
        scorer = stack.enter_context(closing(TrieScorer(target, prompt_ids, room)))
        drafting = (
            stack.enter_context(closing(TrieScorer(draft_model, prompt_ids, room))) if draft_model else None
        )
        while not search.is_done:
            ahead = min(num_draft_tokens, max_new_tokens - search.length - 1)
            guesses = _drafted(drafting, search.running, num_draft_beams, ahead) if drafting else []
            log_probs = scorer.score({*(beam.token_ids for beam in search.running), *guesses})
            while not search.is_done and all(beam.token_ids in log_probs for beam in search.running):
                search.advance(log_probs)
        return BeamSearch(
            tuple(beam.token_ids for beam in search.finished),
            tuple(search.score(beam) for beam in search.finished),
            scorer.passes,
            scorer.positions,
        )


def _drafted(drafting: "TrieScorer", beams: Sequence[Beam], width: int, steps: int) -> list[Tokens]:
    """All beams that a search of the draft model goes through in its next steps."""
    guesses: list[Tokens] = []
    for _ in range(steps):
        beams = best_continuations(beams, drafting.score(beam.token_ids for beam in beams), width)
        guesses += [beam.token_ids for beam in beams]
    return guesses


def best_continuations(beams: Sequence[Beam], log_probs: Mapping[Tokens, LogProbs], count: int) -> list[Beam]:
    """The `count` likeliest beams longer by one token, likeliest first; fewer where there are no more."""
    totals = np.concatenate([beam.log_prob + log_probs[beam.token_ids] for beam in beams])
    count = min(count, int(np.isfinite(totals).sum()))
    largest = np.argpartition(-totals, count - 1)[:count]
    vocab_size = len(totals) // len(beams)
    return [
        Beam((*beams[place // vocab_size].token_ids, int(place % vocab_size)), float(totals[place]))
        for place in largest[np.argsort(-totals[largest], kind="stable")]
    ]


class _Search:
    """The beams of one search: those that go on and those that are finished."""

    def __init__(self, width: int, max_new_tokens: int, length_penalty: float, ends: frozenset[int]) -> None:
        self.length = 0
        self.running = [Beam((), 0.0)]
        self.finished: list[Beam] = []
        self._width, self._max_new_tokens, self._ends = width, max_new_tokens, ends
        self._length_penalty = length_penalty

    def score(self, beam: Beam) -> float:
        return float(beam.log_prob / len(beam.token_ids) ** self._length_penalty)

    @property
    def is_done(self) -> bool:
        """Whether no beam goes on, or none can be expected to do better than those finished."""
        if not self.running:
            return True
        worst = min(map(self.score, self.finished)) if len(self.finished) == self._width else -inf
        return bool(self.length) and self.score(self.running[0]) <= worst

    def advance(self, log_probs: Mapping[Tokens, LogProbs]) -> None:
        """One step, given the log probabilities `[vocabulary]` that follow each running beam."""
        self.length += 1
        # Enough that the width is left to go on when all that could end do.
        found = best_continuations(self.running, log_probs, (1 + len(self._ends)) * self._width)
        ended = [self.length == self._max_new_tokens or beam.token_ids[-1] in self._ends for beam in found]
        self.running = [beam for beam, end in zip(found, ended, strict=True) if not end][: self._width]
        best = list(zip(found, ended, strict=True))[: self._width]
        self.finished += [beam for beam, end in best if end]
        self.finished = sorted(self.finished, key=self.score, reverse=True)[: self._width]


class TrieScorer:
    """Log probabilities that follow many continuations of one prompt, in one pass over the tree they form.

    The cache holds what all of them have in common; where they part again, the rest is fed anew.
    """

    def __init__(self, model: LanguageModel, prompt_ids: Tokens, room: int) -> None:
        self._prompt = prompt_ids
        self._state = model.open(1, min(room, model.max_length))
        self._vocab_size = model.vocab_size
        self._nodes: dict[Tokens, int] = {}  # the tree of the last pass: its paths and their places
        self._held = len(prompt_ids) - 1  # tokens in the cache before that tree
        self.passes = self.positions = 0
        if self._held:
            self._state.forward([self._fit(prompt_ids[:-1])], [1])

    def score(self, continuations: Iterable[Tokens]) -> dict[Tokens, LogProbs]:
        """Log probabilities `[vocabulary]` of the token after prompt and continuation, for each of them."""
        wanted = [(*self._prompt, *continuation) for continuation in set(continuations)]
        fed_from = self._keep(_common_prefix(wanted))
        nodes: dict[Tokens, int] = {}
        for path in wanted:
            for end in range(fed_from + 1, len(path) + 1):
                nodes.setdefault(path[fed_from:end], len(nodes))
        token_ids = [path[-1] for path in nodes]
        parents = [nodes.get(path[:-1], -1) for path in nodes]
        is_chain = parents == list(range(-1, len(parents) - 1))
        logits = self._state.forward([self._fit(token_ids)], [len(nodes)], None if is_chain else [parents])[0]
        self._nodes, self._held = nodes, fed_from
        self.passes += 1
        self.positions += len(nodes)
        return {path[len(self._prompt) :]: _log_softmax(logits[nodes[path[fed_from:]]]) for path in wanted}

    def _keep(self, common: Tokens) -> int:
        """Hold as much of `common` as the last tree has, but for its last token; return how much that is."""
        held = min(self._held, len(common) - 1)
        tail = common[self._held : -1]
        known = takewhile(lambda end: tail[:end] in self._nodes, range(1, len(tail) + 1))
        slots = [self._held + self._nodes[tail[:end]] for end in known]
        self._state.keep_path(0, held, slots)
        return held + len(slots)

    def _fit(self, token_ids: Sequence[int]) -> list[int]:
        """A draft model may lack tokens that are padding; what it reads there makes a worse guess."""
        return [min(token_id, self._vocab_size - 1) for token_id in token_ids]

    def close(self) -> None:
        self._state.close()


def _common_prefix(sequences: Sequence[Tokens]) -> Tokens:
    first, last = min(sequences), max(sequences)
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return tuple(token_id for token_id, _ in shared)


def _log_softmax(logits: NDArray[np.floating]) -> LogProbs:
    shifted = logits.astype(np.float64) - float(logits.max())
    normalised: LogProbs = shifted - np.log(np.exp(shifted).sum())
    return normalised
