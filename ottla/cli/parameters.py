"""Kinds of options: numbers whose bounds are in words, and options with old spellings.

A flag means the same in every command. A former name of a flag still works as an old spelling, which `--help` does not
show.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

_MOST_DIGITS = 10
_NATURAL_BOUNDS = {None, 0, -(2**63), 2**15 - 1, 2**31 - 1, 2**63 - 1}
"""Bounds of the protocol's integers, which `--help` need not name."""


def is_digits(text: str) -> bool:
    """Whether a text within an argument is a number of at most ten digits; `int` refuses thousands of them."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


class Number(click.IntRange):
    """A whole number within closed bounds: `at least 1`, `-1 to 100`."""

    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; refuse other text, and a number out of bounds, in words."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if self.min is not None and number < self.min:
            self.fail(f"{number} is too small: at least {self.min}", param, ctx)
        if self.max is not None and number > self.max:
            self.fail(f"{number} is too large: at most {self.max}", param, ctx)
        return number

    def _describe_range(self) -> str:
        """The bounds as `--help` shows them."""
        low = None if self.min in _NATURAL_BOUNDS else self.min
        high = None if self.max in _NATURAL_BOUNDS else self.max
        if low is None:
            return "" if high is None else f"at most {high}"
        return f"at least {low}" if high is None else f"{low} to {high}"


class Choice(click.Choice[str]):
    """One of some words, in upper or lower case; they are shown as they are declared."""

    def __init__(self, choices: Iterable[str]) -> None:
        super().__init__(list(choices), case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word as it is declared; refuse others with the one that was probably meant."""
        by_lower = {choice.lower(): choice for choice in self.choices}
        found = by_lower.get(str(value).lower())
        if found is None:
            near = difflib.get_close_matches(str(value).lower(), by_lower, n=1)
            meant = f": did you mean {by_lower[near[0]]}?" if near else ""
            self.fail(f"{value!r} is not one of {', '.join(self.choices)}{meant}", param, ctx)
        return found


class Name(click.types.StringParamType):
    """A name, such as that of a topic. It is never empty; an unset variable of a shell is an empty argument."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name."""
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


NAME = Name()


class FilePath(click.Path):
    """A path of a file or directory. It is never empty: Python would take that for the current directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, as `click.Path` gives it."""
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


class Address(Name):
    """An IP address, as clients connect from."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The address."""
        import ipaddress  # takes milliseconds of a start

        text = super().convert(value, param, ctx)
        try:
            ipaddress.ip_address(text)
        except ValueError:
            self.fail(f"{text!r} is not an IP address, such as 10.0.0.7", param, ctx)
        return text


class Option(click.Option):
    """An option with `old` spellings, which work but are not shown."""

    def __init__(self, param_decls: Sequence[str] | None = None, *, old: Sequence[str] = (), **attrs: Any) -> None:
        super().__init__([*(param_decls or ()), *old], **attrs)
        self.old = frozenset(old)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """As click's, without the old spellings."""
        with self._without_old():
            return super().get_help_record(ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """As click's, without the old spellings."""
        with self._without_old():
            return super().get_error_hint(ctx)

    @contextmanager
    def _without_old(self) -> Iterator[None]:
        every = self.opts
        self.opts = [one for one in every if one not in self.old]
        try:
            yield
        finally:
            self.opts = every


def unescaped(option: str, text: str) -> bytes:
    """The bytes of an option's text with escapes. Raises click.BadParameter."""
    from ottla.cli.escapes import unescape

    try:
        return unescape(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def split_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` of each text; the last one of a key counts. Raises click.BadParameter."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        pairs[key.strip()] = value
    return pairs
