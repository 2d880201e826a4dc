"""The prompts of a JSONL file, each with options of its own."""

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from draftwise.cli.prompt import naming, read_text
from draftwise.errors import PromptError
from draftwise.models.base import LanguageModel
from draftwise.request import Options, Request
from draftwise.sampling import SamplingParams
from draftwise.sequence import Sequence

# Those that JSON can say as they are.
_PLAIN_SAMPLING = {
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "banned",
    "min_new_tokens",
}


def read_requests(file: Path, options: Request) -> list[Request]:
    """A request for each line of a JSONL file, which has a `prompt` or `messages`.

    Other fields of a line are options of its own: of `Request` and of `SamplingParams`, by their names. The
    others are those of `options`. Raises PromptError where a line is not so written, and OptionError for a
    value out of range; both name the line.
    """
    requests: list[Request] = []
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if line.strip():
            where = f"line {number} of {file}"
            with naming(where):
                requests.append(_request(where, line, options))
    if not requests:
        raise PromptError(f"{file} has no prompts; give a JSON object with a prompt on each line.")
    return requests


@dataclass(frozen=True)
class Line(Request):
    """A request that stands on a line of a file: what is wrong with it names the line."""

    where: str = field(default="", repr=False)

    def sequence(self, target: LanguageModel) -> Sequence:
        """As that of a `Request`."""
        with naming(self.where):
            return Request.sequence(self, target)


def _request(where: str, line: str, options: Request) -> Line:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"this is not JSON ({error}); write one object a line.") from None
    if not isinstance(given, dict) or ("prompt" in given) == ("messages" in given):
        raise PromptError("this is no object with either a prompt or messages; give one of them.")
    prompt = given.pop("prompt", None) or given.pop("messages", ())
    own = {name: given.pop(name) for name in Options.__annotations__ if name in given and name != "sampling"}
    sampled = {name: given.pop(name) for name in _PLAIN_SAMPLING if name in given}
    if given:
        raise PromptError(
            f"{next(iter(given))!r} is no option; give some of "
            f"{', '.join(sorted({*Options.__annotations__} - {'sampling'} | _PLAIN_SAMPLING))}."
        )
    as_given = {each.name: getattr(options, each.name) for each in fields(options)}
    sampling = replace(options.sampling or SamplingParams(), **sampled)
    return Line(**as_given | own | {"prompt": prompt, "sampling": sampling, "where": where})
