"""Earlier outputs, kept within a bound, on disk too, and indexed by what followed what."""

import os
import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from draftwise.drafters.suffix_automaton import SuffixAutomaton
from draftwise.errors import ModelError, OptionError, TokenizerMismatchError
from draftwise.tokenizer import Tokenizer

_FORMAT = "draftwise corpus 1"
BREAK = -2  # stands in an index after each output: no text holds it, so no match reaches across
_PARTS = 4  # the oldest of them is forgotten as a whole


class Part:
    """Some outputs and one index over them."""

    def __init__(self) -> None:
        self.outputs: list[tuple[int, ...]] = []
        self.index = SuffixAutomaton()

    def add(self, output: Sequence[int]) -> None:
        self.outputs.append(tuple(output))
        for token_id in (*output, BREAK):
            self.index.append(token_id)


class Corpus:
    """The latest outputs of a model, at most `max_tokens` tokens of them; the oldest are forgotten first.

    They take about 130 bytes a token. Raises OptionError for a `max_tokens` below 4. It is for one
    thread at a time.
    """

    def __init__(self, max_tokens: int = 1 << 18) -> None:
        if max_tokens < _PARTS:
            raise OptionError(f"max_tokens of a corpus is {max_tokens}; give at least {_PARTS}.")
        self.max_tokens = max_tokens
        self.parts: deque[Part] = deque([Part()])

    def __len__(self) -> int:
        """Tokens held, an end for each output included."""
        return sum(len(part.index) for part in self.parts)

    @property
    def outputs(self) -> list[tuple[int, ...]]:
        """The outputs held, the oldest first."""
        return [output for part in self.parts for output in part.outputs]

    def add(self, output: Sequence[int]) -> None:
        """Remember one output, or its end if it is longer than a quarter of what may be held."""
        most = self.max_tokens // _PARTS
        kept = output[max(0, len(output) - most + 1) :]
        if len(self.parts[-1].index) + len(kept) + 1 > most:
            self.parts.append(Part())
        if len(self.parts) > _PARTS:
            self.parts.popleft()
        self.parts[-1].add(kept)

    @classmethod
    def of(cls, outputs: Iterable[Sequence[int]], max_tokens: int = 1 << 18) -> Self:
        """A corpus of these outputs, the oldest first."""
        corpus = cls(max_tokens)
        for output in outputs:
            corpus.add(output)
        return corpus

    def save(self, path: Path | str, tokenizer: Tokenizer | None = None) -> None:
        """Write it as one .npz file, whole or not at all; `tokenizer` is the one that made the tokens.

        Raises ModelError where that cannot be written.
        """
        path = Path(path)
        partial = path.with_name(f"{path.name}.partial-{secrets.token_hex(4)}")
        outputs = self.outputs
        try:
            with open(partial, "wb") as file:
                np.savez_compressed(
                    file,
                    format=np.array(_FORMAT),
                    tokenizer=np.array(tokenizer.fingerprint if tokenizer else ""),
                    max_tokens=np.array(self.max_tokens),
                    lengths=np.array([len(output) for output in outputs], np.int64),
                    token_ids=np.array([token_id for output in outputs for token_id in output], np.int32),
                )
            os.replace(partial, path)
        except OSError as error:
            raise ModelError(f"{path} cannot be written ({error.strerror}); give another place.") from None
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path | str, tokenizer: Tokenizer | None = None) -> Self:
        """Read what `save` wrote; `tokenizer` is the target's.

        Raises ModelError where the file is not such a corpus or not a whole one, and TokenizerMismatchError
        where another tokenizer made its tokens.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                if file["format"] != _FORMAT:
                    raise ValueError("it has another format")
                fingerprint = str(file["tokenizer"])
                lengths, token_ids = file["lengths"], file["token_ids"]
                if lengths.sum() != len(token_ids) or (lengths < 0).any() or (token_ids < 0).any():
                    raise ValueError("its lengths do not fit its tokens")
                outputs = [part.tolist() for part in np.split(token_ids, lengths.cumsum()[:-1])]
                corpus = cls.of(outputs if len(lengths) else [], int(file["max_tokens"]))
        except FileNotFoundError:
            raise ModelError(f"{path} does not exist; give a corpus that was saved.") from None
        except Exception as error:  # what numpy raises depends on where the file stops making sense to it
            raise ModelError(f"{path} is not a whole corpus ({error}); remove it to begin anew.") from None
        if fingerprint != (tokenizer.fingerprint if tokenizer else ""):
            used_with = tokenizer.name if tokenizer else "a model without one"
            raise TokenizerMismatchError(
                f"{path} holds tokens of another tokenizer than that of {used_with}; "
                "keep one corpus for each tokenizer."
            )
        return corpus
