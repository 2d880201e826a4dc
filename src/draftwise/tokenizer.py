"""Text to token ids and back, from a model folder's own tokenizer files."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import tokenizers

from draftwise.chat_template import ChatTemplate, Message
from draftwise.errors import ModelError, PromptError
from draftwise.spelling import spelled

PIECES, SOURCE_PIECES = "pieces.json", "source_pieces.json"  # beside a tokenizer.json; see Tokenizer
_UNFINISHED = "\ufffd"  # what decoders write for the bytes of a character that is not complete


class Tokenizer:
    """A model's tokenizer and chat template: they work as in transformers, without importing it."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        name: str,
        chat_template: ChatTemplate | None = None,
        eos_token_ids: Iterable[int] = (),
        pieces: tokenizers.Tokenizer | None = None,
        source: "Tokenizer | None" = None,
    ) -> None:
        """`pieces`: cuts a text into the tokens that `backend` has ids for; None: that does both.

        `source`: for what an encoder reads, where that is cut in another way than what the model writes.
        """
        self._backend = backend
        self._pieces = pieces
        self._source = source
        self._backend.no_truncation()
        self._backend.no_padding()
        self._chat_template = chat_template
        self.name = name
        self.eos_token_ids = frozenset(eos_token_ids)

    @classmethod
    def from_folder(cls, folder: Path | str, name: str | None = None) -> Self:
        """Read tokenizer.json and, where they exist, tokenizer_config.json, chat template and eos ids.

        Two more files of its kind may cut texts before the first gives ids: pieces.json, and
        source_pieces.json for what an encoder reads. `name` is how errors call the model; the default is the
        folder. Raises ModelError.
        """
        folder = Path(folder)
        name = name or str(folder)
        if not (folder / "tokenizer.json").is_file():
            raise ModelError(
                f"{name} has no tokenizer.json; give a model folder that holds one, "
                "as transformers' save_pretrained writes it."
            )
        backend = _read_backend(folder / "tokenizer.json")
        pieces, source_pieces = (
            _read_backend(folder / file) if (folder / file).is_file() else None
            for file in (PIECES, SOURCE_PIECES)
        )
        config = _read_json(folder / "tokenizer_config.json")
        special_tokens = _special_tokens(config)
        _add_missing_tokens(backend, config, special_tokens)
        template = _template_source(folder, config)
        eos_token = special_tokens.get("eos_token")
        return cls(
            backend,
            name=name,
            chat_template=ChatTemplate(template, special_tokens, name) if template else None,
            eos_token_ids=_eos_token_ids(folder, backend.token_to_id(eos_token) if eos_token else None),
            pieces=pieces,
            source=cls(backend, name=name, pieces=source_pieces) if source_pieces else None,
        )

    @property
    def source(self) -> "Tokenizer":
        """The tokenizer of what the model's encoder reads: this one, but for a translator's languages."""
        return self._source or self

    @property
    def has_chat_template(self) -> bool:
        return self._chat_template is not None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of raw text, with the special tokens that the model puts around every text.

        Raises PromptError for text that is not valid Unicode.
        """
        try:
            words = self._pieces.encode(text, add_special_tokens=False).tokens if self._pieces else text
            ids: list[int] = self._backend.encode(
                words, is_pretokenized=self._pieces is not None, add_special_tokens=add_special_tokens
            ).ids
        except TypeError:  # a string with lone surrogates
            raise PromptError("the prompt is not valid Unicode text; give it in UTF-8.") from None
        return ids

    def encode_chat(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """Token ids of a conversation, up to where the assistant's answer begins.

        `messages`: `{"role": ..., "content": ...}` each; `variables` go to the template. Raises PromptError
        where the model has no chat template or the template refuses the messages.
        """
        if self._chat_template is None:
            raise PromptError(f"{self.name} has no chat template; give the prompt as raw text.")
        text = self._chat_template.render(messages, add_generation_prompt, **variables)
        return self.encode(text, add_special_tokens=False)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids; ids that the tokenizer lacks (the padding of a vocabulary) are no text."""
        text: str = self._backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        return text

    def stream(self) -> "Detokenizer":
        """A decoder for a sequence that grows token by token."""
        return Detokenizer(self)

    def token(self, token_id: int) -> str | None:
        """The vocabulary's own spelling of a token; None where the id is padding."""
        token: str | None = self._backend.id_to_token(token_id)
        return token

    @cached_property
    def vocabulary(self) -> Mapping[int, str]:
        """The vocabulary's own spelling of each token id, added tokens included."""
        return {
            token_id: token
            for token, token_id in sorted(self._backend.get_vocab(with_added_tokens=True).items())
        }

    @cached_property
    def spellings(self) -> Mapping[int, bytes]:
        """The bytes that each token id stands for; added tokens, special ones too, stand for their names."""
        decoder = self._backend.decoder
        bytes_of = spelled(self.vocabulary, json.loads(decoder.__getstate__()) if decoder else None)
        added = self._backend.get_added_tokens_decoder()
        return bytes_of | {token_id: token.content.encode() for token_id, token in added.items()}

    @cached_property
    def leading_ids(self) -> Sequence[int]:
        """The special tokens that the model puts before every text."""
        bare, framed = self.encode("a", add_special_tokens=False), self.encode("a")
        return framed[: next(at for at in range(len(framed) + 1) if framed[at : at + len(bare)] == bare)]

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id."""
        return max(self.vocabulary) + 1

    @property
    def definition(self) -> str:
        """All of it but the chat template, as tokenizer.json has it."""
        text: str = self._backend.to_str()
        return text

    @cached_property
    def fingerprint(self) -> str:
        """The same string for the same vocabulary, on every machine."""
        spelled = json.dumps(sorted(self.vocabulary.items()), ensure_ascii=True)
        return hashlib.sha256(spelled.encode()).hexdigest()[:16]

    def difference(self, other: "Tokenizer") -> str | None:
        """The first id that means another token in the other tokenizer, in words; None if there is none.

        Ids that only one of the two has (a padded vocabulary) are no difference.
        """
        if self.fingerprint == other.fingerprint:
            return None
        for token_id in sorted(self.vocabulary.keys() & other.vocabulary.keys()):
            mine, theirs = self.vocabulary[token_id], other.vocabulary[token_id]
            if mine != theirs:
                return f"id {token_id} is {mine!r} in {self.name} and {theirs!r} in {other.name}"
        return None


class Detokenizer:
    """Text of a growing sequence, in pieces that put together are the text of the whole.

    The bytes of an unfinished character are held back. A byte-fallback token that is a whole character is
    given out at once; should the bytes after it turn out to be invalid, only those become U+FFFD.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # How a token reads depends on the one before it, so the window begins with tokens whose text is out.
        self._window: list[int] = []
        self._num_given = 0
        self._given = ""

    def step(self, token_id: int) -> str:
        """The text that this token completed; "" where it is special or a part of a character."""
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window)
        if text == self._given or text.endswith(_UNFINISHED):
            return ""
        return self._give(text)

    def flush(self) -> str:
        """The text still held back, an unfinished character as U+FFFD."""
        return self._give(self._tokenizer.decode(self._window))

    def _give(self, text: str) -> str:
        fresh = self._window[self._num_given :]
        alone = self._tokenizer.decode(fresh)
        piece = text[len(self._given) :] if text.startswith(self._given) else alone
        self._window, self._num_given, self._given = fresh, len(fresh), alone
        return piece


def _read_backend(file: Path) -> tokenizers.Tokenizer:
    """What the library tokenizers saved."""
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"{file} is not a tokenizer ({error}); fetch the file again.") from None


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON ({error}); fetch the file again.") from None
    return value if isinstance(value, dict) else {}


def _spelling(token: object) -> str | None:
    """A token as config files write it: a string, or an object with its content."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The named special tokens: bos_token, eos_token and their like."""
    return {
        key: spelling
        for key, value in config.items()
        if key.endswith("_token") and (spelling := _spelling(value)) is not None
    }


def _add_missing_tokens(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], special_tokens: Mapping[str, str]
) -> None:
    """Add the tokens that only tokenizer_config.json names, in the order of their ids."""
    decoder: Mapping[str, Mapping[str, Any]] = config.get("added_tokens_decoder") or {}
    options = ("single_word", "lstrip", "rstrip", "normalized", "special")
    listed = [
        tokenizers.AddedToken(
            token["content"], **{option: token[option] for option in options if option in token}
        )
        for _, token in sorted(decoder.items(), key=lambda item: int(item[0]))
    ]
    named = [tokenizers.AddedToken(token, special=True) for token in special_tokens.values()]
    known = set(backend.get_added_tokens_decoder().values())
    spelled = {token.content for token in known}
    for token in (*listed, *named):
        if token.content not in spelled:
            backend.add_tokens([token])
            spelled.add(token.content)


def _template_source(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The chat template: a file of its own, or a string or a list of named ones in tokenizer_config.json."""
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    return template


def _eos_token_ids(folder: Path, tokenizer_eos: int | None) -> Iterator[int]:
    """Every id that ends a text, by generation_config.json (else config.json) and by the tokenizer."""
    if tokenizer_eos is not None:
        yield tokenizer_eos
    for file in ("generation_config.json", "config.json"):
        listed = _read_json(folder / file).get("eos_token_id")
        if listed is not None:
            yield from listed if isinstance(listed, list) else [listed]
            return
