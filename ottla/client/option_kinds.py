"""The kinds of options: each makes a dataclass field whose value is converted from the given object, and checked.

A converter takes any object and returns the value, or raises ValueError("must be ..."); its caller adds the name.
Numbers and booleans may be text, as in properties files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, cast

_LARGEST_INT = 2**31 - 1
_MOST_STRING_BYTES = 2**15 - 1
"""A string in Kafka's protocol has an int16 as its length."""


def integer(default: int, low: int = 0, high: int = _LARGEST_INT) -> int:
    """Make an option that is a whole number."""
    return cast(int, _option(default, partial(_to_integer, low, high)))


def milliseconds(default: float, low: float = 0) -> float:
    """Make an option that is a time and may have a fraction."""
    return cast(float, _option(default, partial(_to_number, low)))


def boolean(default: bool) -> bool:
    """Make an option that is on or off."""
    return cast(bool, _option(default, to_boolean))


def text(default: str) -> str:
    """Make an option that is any text."""
    return cast(str, _option(default, _to_text))


def wire_text(default: str) -> str:
    """Make an option that is text short enough for a request."""
    return cast(str, _option(default, _to_wire_text))


def secret(default: str) -> str:
    """Make an option that is any text, which neither a `repr` nor an error shows."""
    return field(default=default, repr=False, metadata={"convert": _to_text, "is_secret": True})


def choice(default: str, choices: Sequence[str]) -> str:
    """Make an option that is one of some words."""
    return cast(str, _option(default, partial(_to_choice, choices)))


def option_of(default: Any, convert: Callable[[object], object], *, is_secret: bool = False) -> Any:
    """Make an option with its own converter; `convert` raises ValueError("must be ...") for an invalid value."""
    return field(default=default, repr=not is_secret, metadata={"convert": convert, "is_secret": is_secret})


def optional(default: None, convert: Callable[[object], object]) -> Any:
    """Make an option that may be unset: None stays None, anything else is converted."""
    return _option(default, lambda value: None if value is None else convert(value))


def _option(default: Any, convert: Callable[[object], object]) -> Any:
    return field(default=default, metadata={"convert": convert})


def _to_integer(low: int, high: int, value: object) -> int:
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"must be a number, {_bounds(low, high, value)}")
    return value


def _to_number(low: float, value: object) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= _LARGEST_INT:
        raise ValueError(f"must be a number, {_bounds(low, _LARGEST_INT, value)}")
    return value


def _bounds(low: float, high: int, value: object) -> str:
    is_too_large = isinstance(value, (int, float)) and value > high
    return f"{low} or more" if high == _LARGEST_INT and not is_too_large else f"{low} to {high}"


def to_boolean(value: object) -> bool:
    """Accept true and false, also as text."""
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.strip().lower())
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _to_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _to_wire_text(value: object) -> str:
    text = _to_text(value)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("must be text that is Unicode") from None
    if size > _MOST_STRING_BYTES:
        raise ValueError(f"must be text of at most {_MOST_STRING_BYTES} bytes")
    return text


def to_name(value: object) -> str:
    """Accept text that is not empty, and short enough for a request."""
    if not isinstance(value, str) or not value:
        raise ValueError("must be text, and not empty")
    return _to_wire_text(value)


def _to_choice(choices: Sequence[str], value: object) -> str:
    if value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}")
    return str(value)


def to_function(value: object) -> object:
    """Accept functions."""
    if not callable(value):
        raise ValueError("must be a function")
    return value


def to_text_or_function(value: object) -> object:
    """Accept text, or a function that returns it."""
    if not isinstance(value, str) and not callable(value):
        raise ValueError("must be text, or a function that returns it")
    return value


def to_number(low: float) -> Callable[[object], float]:
    """A converter to numbers from `low` on."""
    return partial(_to_number, low)


def to_integer(low: int, high: int = _LARGEST_INT) -> Callable[[object], int]:
    """Return a converter to whole numbers within bounds."""
    return partial(_to_integer, low, high)
