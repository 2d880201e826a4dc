"""Text to token ids and back, from a model folder's own tokenizer files."""

from collections.abc import Mapping, Sequence


class Tokenizer:
    """A fast tokenizer and its chat template."""

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        raise NotImplementedError

    def decode(self, token_ids: Sequence[int]) -> str:
        raise NotImplementedError

    def stream(self) -> "Detokenizer":
        raise NotImplementedError


class Detokenizer:
    """Text of a growing sequence, in pieces."""

    def step(self, token_id: int) -> str:
        raise NotImplementedError

    def flush(self) -> str:
        raise NotImplementedError
