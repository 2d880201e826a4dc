"""A smaller language model guesses: it drafts one token after another (2211.17192, Algorithm 1)."""

from collections.abc import Sequence

from draftwise.checks import whole_number
from draftwise.control.base import Limit, UpTo
from draftwise.drafters.ahead import Next
from draftwise.drafters.base import Drafter, DraftState, refuse_no_drafter
from draftwise.drafters.none import NoDrafter
from draftwise.errors import TokenizerMismatchError, UnsupportedError
from draftwise.models.base import LanguageModel, ModelState, Tap, refuse_no_model
from draftwise.randomness import Randomness
from draftwise.sampling import Sampler
from draftwise.tokenizer import Tokenizer
from draftwise.types import Draft, Probs, Source, Step

_BLOCK = 256  # tokens that are compared at a time


class DraftModel:
    """Any language model that shares the target's tokenizer, as a drafter.

    `num_draft_tokens`: how many tokens it drafts where the caller does not say. Raises OptionError below 1.
    `drafter` guesses what the model is going to draft, so that one pass may draft several tokens: it saves
    passes and does not change a single token, nor the distribution it is drawn from. It may itself be a draft
    model with a drafter, and so on.
    """

    def __init__(
        self,
        model: LanguageModel,
        name: str | None = None,
        num_draft_tokens: int = 4,
        drafter: Drafter | None = None,
    ) -> None:
        whole_number("num_draft_tokens", num_draft_tokens, least=1)
        refuse_no_model("model", model)
        self.model = model
        self.drafter = drafter or NoDrafter()
        refuse_no_drafter(self.drafter)
        self.name = name or (f"{model.name} < {drafter.name}" if drafter else model.name)
        self.default_num_draft_tokens = num_draft_tokens

    def open(self, target: LanguageModel, num_sequences: int, max_length: int) -> "DraftModelState":
        """Start drafting for `target`. Raises TokenizerMismatchError where a token id means two things.

        A model without a tokenizer is taken to share the target's. Vocabularies may differ in size: what one
        has beyond the other is padding.
        """
        model = self.model
        refuse_stranger(self.name, model, target)
        capacity = min(max_length, model.max_length)
        guessing = self.drafter.open(model, num_sequences, capacity)
        try:
            cache = model.open(num_sequences, capacity, width_invariant=False)
        except BaseException:
            guessing.close()
            raise
        return DraftModelState(self, cache, guessing, capacity, target.vocab_size, num_sequences)


def refuse_stranger(name: str, model: LanguageModel, target: LanguageModel) -> None:
    """Raise TokenizerMismatchError where a token id means two things to a drafter's model and its target, and
    UnsupportedError where the model has an encoder and the target reads nothing for it.
    """
    if model.encoder and not target.encoder:
        raise UnsupportedError(
            f"{name} has an encoder and cannot draft for {target.name}, which has none; take a draft model "
            "without one."
        )
    refuse_other_tokens(name, model.tokenizer, target)


def refuse_other_tokens(name: str, tokenizer: Tokenizer | None, target: LanguageModel) -> None:
    """Raise TokenizerMismatchError where a token id means two things to a tokenizer and a target."""
    if target.tokenizer and tokenizer:
        difference = target.tokenizer.difference(tokenizer)
        if difference:
            raise TokenizerMismatchError(
                f"{name} cannot draft for {target.name}, as their tokenizers differ ({difference}); take a "
                "draft model with the target's tokenizer, or translate: TranslatedModel (--drafter tli) or "
                "TextDraftModel (--drafter slem)."
            )


class DraftModelState:
    """A cache of the draft model that follows each row's context, and goes back over its own rejected tokens.

    Where a context has outgrown the draft model, its drafts are empty.
    """

    taps: Sequence[Tap] = ()

    def __init__(
        self,
        drafter: DraftModel,
        cache: ModelState,
        guessing: DraftState,
        capacity: int,
        target_vocab_size: int,
        num_sequences: int,
    ) -> None:
        self._cache = cache
        self._guessing = guessing
        self._most_guessed = min(
            drafter.drafter.default_num_draft_tokens, drafter.default_num_draft_tokens - 1
        )
        self._capacity = capacity
        self._vocab_size = drafter.model.vocab_size
        self._target_vocab_size = target_vocab_size
        # For each row its last context and what was drafted there: what the cache holds, but for the last
        # token where no distribution after it was asked for.
        self._held: list[list[int]] = [[] for _ in range(num_sequences)]

    def begin(self, row: int, source: Source | None) -> None:
        self._cache.begin(row, source)
        self._guessing.begin(row, source)
        self._held[row] = []

    def confidence(self, row: int, context: Sequence[int]) -> float | None:
        return None if self._room(row, context) > 0 else 0.0

    def _room(self, row: int, context: Sequence[int]) -> int:
        """How many tokens can be drafted: the last one is not fed."""
        return self._capacity + 1 - len(context)

    def propose(
        self,
        contexts: Sequence[Sequence[int]],
        limits: Sequence[Limit],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        def goes_on(row: int) -> bool:
            count = len(drafted[row])
            return count < self._room(row, contexts[row]) and limits[row].allows(count)

        drafted: list[list[int]] = [[] for _ in contexts]
        drawn_from: list[list[Probs]] = [[] for _ in contexts]
        feeds = [self._catch_up(row, context) if goes_on(row) else [] for row, context in enumerate(contexts)]
        drafting = [row for row, feed in enumerate(feeds) if feed]
        guesses = self._guess(contexts, [bool(feed) for feed in feeds], samplers, randomness)
        while any(feeds):
            logits = self._cache.forward(
                [[*feed, *guess.token_ids] for feed, guess in zip(feeds, guesses, strict=True)],
                [len(guess) + 1 if feed else 0 for feed, guess in zip(feeds, guesses, strict=True)],
                [guess.parents_after(len(feed)) for feed, guess in zip(feeds, guesses, strict=True)],
            )
            for row in [row for row, feed in enumerate(feeds) if feed]:
                feeds[row], guess, guesses[row] = [], guesses[row], Draft()
                children, path, node = guess.children(), list[int](), -1
                while not feeds[row]:
                    sampler = samplers[row].after(drafted[row])
                    ahead = Next(logits[row][node + 1][: self._target_vocab_size], sampler)
                    if not (ahead.confidence and limits[row].allows(len(drafted[row]), ahead.confidence)):
                        break
                    drafted[row].append(ahead.draw(randomness[row]))
                    if ahead.probs is not None:
                        drawn_from[row].append(ahead.probs)
                    last = drafted[row][-1]
                    right = next(
                        (child for child in children[node + 1] if guess.token_ids[child] == last), None
                    )
                    if right is not None:
                        node = right
                        path.append(node)
                    if not goes_on(row):
                        break
                    if right is None:
                        feeds[row] = [last]
                if guess:  # the cache goes back over the guesses that were wrong
                    held = self._cache.lengths[row] - len(guess)
                    self._cache.keep_path(row, held, [held + index for index in path])
        for row in drafting:
            self._held[row] = [*contexts[row], *drafted[row]]
        return [
            Draft(tuple(token_ids), probs or None)
            for token_ids, probs in zip(drafted, drawn_from, strict=True)
        ]

    def _guess(
        self,
        contexts: Sequence[Sequence[int]],
        active: Sequence[bool],
        samplers: Sequence[Sampler],
        randomness: Sequence[Randomness],
    ) -> list[Draft]:
        """What this model's draft will be, says its own drafter: fed with the context, in the same pass.

        A guess, a chain or a tree, is greedy: it uses none of the draft's random numbers.
        """
        limits = [
            UpTo(max(0, min(self._most_guessed, self._room(row, context) - 1)) if active[row] else 0)
            for row, context in enumerate(contexts)
        ]
        greedy = [sampler.greedy() for sampler in samplers]
        drafts = self._guessing.propose(contexts, limits, greedy, randomness)
        return [_within(draft, self._vocab_size) for draft in drafts]

    def _catch_up(self, row: int, context: Sequence[int]) -> list[int]:
        """Go back to what the cache and the context share; return the tokens of the context after that."""
        shared = num_shared(self._held[row], context)
        # The cache may lack the last token drafted, and one token is always fed, for its logits.
        self._cache.keep(row, min(shared, self._cache.lengths[row], len(context) - 1))
        tail = context[self._cache.lengths[row] :]
        # Padding that the target emitted may lie beyond this model's vocabulary. Reading its last token there
        # makes a worse guess, which is still an exact one.
        return [min(token_id, self._vocab_size - 1) for token_id in tail]

    def observe(self, step: Step) -> None:
        """The contexts say what was accepted; the drafter of this model may have more to learn."""
        self._guessing.observe(step)

    def close(self) -> None:
        self._cache.close()
        self._guessing.close()


def _within(guess: Draft, vocab_size: int) -> Draft:
    """What is left of a guess without tokens beyond a vocabulary, and without all that follows them."""
    place, token_ids, parents = {-1: -1}, list[int](), list[int]()
    for token, parent in enumerate(guess.parents or range(-1, len(guess) - 1)):
        if parent in place and guess.token_ids[token] < vocab_size:
            place[token] = len(token_ids)
            token_ids.append(guess.token_ids[token])
            parents.append(place[parent])
    return Draft(tuple(token_ids), None, guess.parents and tuple(parents))


def num_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    shared, size = 0, min(len(one), len(other))
    while shared < size and one[shared : shared + _BLOCK] == other[shared : shared + _BLOCK]:
        shared = min(shared + _BLOCK, size)
    while shared < size and one[shared] == other[shared]:
        shared += 1
    return shared
