"""Checks of what a caller gives, where Python would only notice in the middle of the work."""

from collections.abc import Collection, Mapping
from numbers import Real
from operator import index
from types import UnionType
from typing import Any

from draftwise.errors import OptionError


def whole_number(name: str, value: object, least: int | None = None) -> int:
    """The value as an int; raises OptionError for what is not a whole number, or is below `least`."""
    try:
        whole = index(None if isinstance(value, bool) else value)  # type: ignore[arg-type]
    except TypeError:
        raise OptionError(f"{name} is {value!r}; give a whole number.") from None
    if least is not None and whole < least:
        raise OptionError(f"{name} is {whole}; give at least {least}.")
    return whole


def number(name: str, value: object) -> float:
    """The value as a float; raises OptionError for anything that is not a number, or is beyond all floats."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise OptionError(f"{name} is {value!r}; give a number.")
    try:
        return float(value)
    except OverflowError:
        raise OptionError(f"{name} is too large for a float; give a smaller number.") from None


def yes_or_no(name: str, value: object) -> None:
    """Raise OptionError for anything but True and False."""
    of_kind(name, value, bool, "True or False")


def is_lone(value: object) -> bool:
    """Whether this is an array of no axes or a number of numpy's, which look as if they held several."""
    return getattr(value, "shape", None) == ()


def listed(name: str, value: object, wanted: str) -> tuple[Any, ...]:
    """What a list or another collection holds; raises OptionError for anything else, and for text."""
    if not isinstance(value, Collection) or is_lone(value) or isinstance(value, str | bytes | Mapping | type):
        raise OptionError(f"{name} is {value!r}; give {wanted}.")
    return tuple(value)


def token_ids(name: str, value: object) -> tuple[int, ...]:
    """The value as token ids; raises OptionError for anything that is not a list of them."""
    return tuple(
        whole_number(f"a token id of {name}", each, least=0)
        for each in listed(name, value, "a list of token ids")
    )


def of_kind(name: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """Raise OptionError for anything that is not of a kind; `wanted` says what to give."""
    if not isinstance(value, kind) or isinstance(value, type):
        raise OptionError(f"{name} is {value!r}; give {wanted}.")
