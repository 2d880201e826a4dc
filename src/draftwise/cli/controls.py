"""The options of the command line that become controls of the sampling."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from draftwise.errors import OptionError

if TYPE_CHECKING:
    from draftwise.sampling.grammar import Grammar


def logit_biases(given: Iterable[str]) -> Mapping[int, float]:
    """From `ID=NUMBER` each; raises OptionError for anything else, and for two of one token."""
    biases: dict[int, float] = {}
    for text in given:
        written, _, bias = text.partition("=")
        try:
            token_id, number = int(written), float(bias)
        except ValueError:
            raise OptionError(
                f"--logit-bias is {text!r}; give a token id and a number, as in 42=-1.5."
            ) from None
        if token_id in biases:
            raise OptionError(f"--logit-bias is given twice for token {token_id}; give their sum once.")
        biases[token_id] = number
    return biases


def banned(given: Iterable[str]) -> list[int | str]:
    """Text as it stands, and of `#ID` the token id."""
    return [int(text[1:]) if text.startswith("#") and text[1:].isdecimal() else text for text in given]


def chosen_grammar(schema: Path | None, regex: str | None, grammar: Path | None) -> "Grammar | None":
    """The grammar that is given, if any; raises OptionError for several, and for one that is not right."""
    options = {"--schema": schema, "--regex": regex, "--grammar": grammar}
    chosen = [name for name, value in options.items() if value is not None]
    if len(chosen) > 1:
        raise OptionError(f"{' and '.join(chosen)} are given; give one of them.")
    if not chosen:
        return None
    from draftwise.sampling.grammar import Grammar

    if schema is not None:
        return Grammar.json_schema(_read(schema))
    return Grammar.regex(regex) if regex is not None else Grammar.lark(_read(cast(Path, grammar)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{path} cannot be read ({error.strerror}); give a file that exists.") from None
    except UnicodeDecodeError:
        raise OptionError(f"{path} is not UTF-8 text; convert it.") from None
