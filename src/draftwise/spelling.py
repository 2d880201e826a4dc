"""The bytes that each token of a vocabulary stands for, as its decoder would write them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE_MARK = "▁"


def spelled(vocabulary: Mapping[int, str], decoder: Mapping[str, Any] | None) -> dict[int, bytes]:
    """The bytes of each token: part of a character where a token is that.

    `vocabulary`: the tokenizer's own spelling of each id. `decoder`: as in the tokenizer.json of tokenizers.
    """
    kinds = {kind["type"]: kind for kind in _flat(decoder or {})}
    if "ByteLevel" in kinds:
        byte_of = {character: byte for byte, character in enumerate(_byte_level_alphabet())}
        return {
            token_id: bytes(map(byte_of.__getitem__, token))
            if all(character in byte_of for character in token)
            else token.encode()
            for token_id, token in vocabulary.items()
        }
    if "WordPiece" in kinds:
        prefix = kinds["WordPiece"]["prefix"]
        return {
            token_id: (token[len(prefix) :] if token.startswith(prefix) else f" {token}").encode()
            for token_id, token in vocabulary.items()
        }
    return {
        token_id: bytes.fromhex(byte[1])
        if "ByteFallback" in kinds and (byte := _BYTE.fullmatch(token))
        else token.replace(_SPACE_MARK, " ").encode()
        for token_id, token in vocabulary.items()
    }


def _flat(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if decoder.get("type") == "Sequence":
        for part in decoder["decoders"]:
            yield from _flat(part)
    elif decoder:
        yield decoder


def _byte_level_alphabet() -> list[str]:
    """The character that byte-level vocabularies (GPT-2's and after) write for each byte."""
    printable = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
