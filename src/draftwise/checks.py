"""Checks of what a caller gives, where Python would only notice in the middle of the work."""

from numbers import Real
from operator import index
from types import UnionType

from draftwise.errors import OptionError


def whole_number(name: str, value: object) -> int:
    """The value as an int; raises OptionError for anything that is not a whole number."""
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise OptionError(f"{name} is {value!r}; give a whole number.") from None


def number(name: str, value: object) -> float:
    """The value as a float; raises OptionError for anything that is not a number."""
    if not isinstance(value, Real):
        raise OptionError(f"{name} is {value!r}; give a number.")
    return float(value)


def of_kind(name: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """Raise OptionError for anything that is not of a kind; `wanted` says what to give."""
    if not isinstance(value, kind) or isinstance(value, type):
        raise OptionError(f"{name} is {value!r}; give {wanted}.")
