"""Chat messages to the text that a model was trained on, by the Jinja template that comes with it."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from draftwise.errors import ModelError, PromptError

Message = Mapping[str, Any]


class ChatTemplate:
    """A compiled chat template; it sees what transformers gives its templates, and runs in a sandbox."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], name: str) -> None:
        self._special_tokens = special_tokens
        self._name = name
        try:
            self._template = _ENVIRONMENT.from_string(source)
        except TemplateError as error:
            raise ModelError(
                f"{name}'s chat template is not valid Jinja ({error}); give the prompt as raw text."
            ) from None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool, **variables: Any) -> str:
        """The text of a conversation with its special tokens; raises PromptError if the template refuses."""
        try:
            return self._template.render(
                messages=[_with_text(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                **{"tools": None, "documents": None, **self._special_tokens, **variables},
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise PromptError(
                f"{self._name}'s chat template refuses these messages ({error}); "
                "change them or give the prompt as raw text."
            ) from None


def text_of(content: object) -> str | None:
    """The text of a message's content: a string, or parts, which are joined; None for anything but text."""
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if len(texts) == len(parts) else None
    return content if isinstance(content, str) else None


def _with_text(message: Message) -> dict[str, Any]:
    """A message whose content is text or, beside what else an assistant did, nothing; raises PromptError."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise PromptError(f"a message has the role {role!r}; give one such as user, assistant or system.")
    text = text_of(content)
    if text is None and (content is not None or message.keys() <= {"role", "content", "name"}):
        raise PromptError(
            f"the content of a message of the {role} is not text ({_abridged(content)}), and the model reads "
            "nothing else; give text."
        )
    return {**message, "content": text}


def _abridged(content: object) -> str:
    shown = repr(content)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; here they are text like any other."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which no model was trained on."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment


_ENVIRONMENT = _environment()
