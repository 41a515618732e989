"""The functions that declare keys: one per type of value.

Each returns an `Option`, but its return type is that of the value that the attribute will hold: so `config.x` is typed.
Use them only in the body of an `Options` class (see `options.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from ottla.config.options import ConfigType, Option, text_of

SHORT_MAX = (1 << 15) - 1
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_T = TypeVar("_T")


def integer_parser(low: int, high: int, excluded: int | None = None) -> tuple[Callable[[str], int], str]:
    """A parser of integers within closed bounds, except the `excluded` one, and the allowed values in words."""
    if high in (INT_MAX, LONG_MAX):
        allowed = "an integer" if low in (-INT_MAX - 1, -LONG_MAX - 1) else f"an integer of at least {low}"
    else:
        allowed = f"an integer from {low} to {high}"
    if excluded is not None:
        allowed += f" and not {excluded}"

    def parse(text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
            raise ValueError(f"must be {allowed}")
        value = int(text)
        if not low <= value <= high:
            limit = f", and at most {high}" if value > high and allowed.startswith("an integer of") else ""
            raise ValueError(f"must be {allowed}{limit}")
        if value == excluded:
            raise ValueError(f"must be {allowed}")
        return value

    return parse, allowed


def int32(
    default: int,
    *,
    doc: str,
    at_least: int = 0,
    at_most: int = INT_MAX,
    excluded: int | None = None,
    kafka: str | None = None,
    inert: str = "",
    dynamic: bool = False,
    unusual: Callable[[object], str] | None = None,
) -> int:
    """A key whose value is a 32-bit integer, within closed bounds and not the one that is `excluded`.

    `kafka`: Apache Kafka's default, where Ottla's differs. `inert`: why the key is accepted and has no effect.
    `dynamic`: may be changed while the broker runs. `unusual`: returns one line about a value that is odd, else an
    empty text.
    """
    parse, allowed = integer_parser(at_least, at_most, excluded)
    return cast("int", Option(ConfigType.INT, default, parse, allowed, doc, kafka, inert, dynamic, unusual))


def int16(default: int, *, doc: str, at_least: int = 0, kafka: str | None = None, inert: str = "") -> int:
    """A key whose value is a 16-bit integer; arguments as for `int32`."""
    parse, allowed = integer_parser(at_least, SHORT_MAX)
    return cast("int", Option(ConfigType.SHORT, default, parse, allowed, doc, kafka, inert))


def int64(
    default: int,
    *,
    doc: str,
    at_least: int = 0,
    at_most: int = LONG_MAX,
    kafka: str | None = None,
    inert: str = "",
    dynamic: bool = False,
    unusual: Callable[[object], str] | None = None,
) -> int:
    """A key whose value is a 64-bit integer; arguments as for `int32`."""
    parse, allowed = integer_parser(at_least, at_most)
    return cast("int", Option(ConfigType.LONG, default, parse, allowed, doc, kafka, inert, dynamic, unusual))


def finer(
    *coarser: tuple[int | None, int],
    doc: str,
    at_least: int = 0,
    bits: int = 64,
    kafka: str | None = None,
    dynamic: bool = False,
) -> int:
    """An integer key that overrides coarser ones, each given with the factor that converts its unit into this one."""
    parse, allowed = integer_parser(at_least, LONG_MAX if bits == 64 else INT_MAX)
    kind = ConfigType.LONG if bits == 64 else ConfigType.INT
    chain = tuple((cast("Option", option), factor) for option, factor in coarser)
    return cast("int", Option(kind, None, parse, allowed, doc, kafka, "", dynamic, coarser=chain))


def maybe_int32(*, doc: str, at_least: int = 0, inert: str = "", dynamic: bool = False) -> int | None:
    """A 32-bit integer key that may stay unset (None)."""
    parse, allowed = integer_parser(at_least, INT_MAX)
    option = Option(ConfigType.INT, None, parse, allowed, doc, inert=inert, is_dynamic=dynamic)
    return cast("int | None", option)


def double(
    default: float,
    *,
    doc: str,
    at_least: float = 0.0,
    at_most: float = math.inf,
    inert: str = "",
    dynamic: bool = False,
) -> float:
    """A key whose value is a 64-bit float, within closed bounds."""
    allowed = (
        f"a number of at least {at_least:g}" if at_most == math.inf else f"a number from {at_least:g} to {at_most:g}"
    )

    def parse(text: str) -> float:
        value = read_number(text, allowed)
        if not at_least <= value <= at_most:  # also refuses NaN
            raise ValueError(f"must be {allowed}")
        return value

    option = Option(
        ConfigType.DOUBLE, default, parse, allowed, doc, inert=inert, is_dynamic=dynamic, show=text_of_double
    )
    return cast("float", option)


def text_of_double(value: object) -> str | None:
    """A floating-point number as Java's `Double.toString` writes it: `1.0E7` where Python has `10000000.0`."""
    if not isinstance(value, float) or not math.isfinite(value) or value == 0 or 1e-3 <= abs(value) < 1e7:
        return text_of(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    power = int(exponent or 0) + (len(whole) - 1 if whole != "0" else len(digits) - len(fraction) - 1)
    digits = digits.rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{power}"


def read_number(text: str, allowed: str) -> float:
    """A floating-point number. Raises ValueError, also for text that only Python accepts: `1_000`, non-ASCII digits."""
    try:
        if "_" in text or not text.isascii():
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError(f"must be {allowed}") from None


def boolean(default: bool, *, doc: str, kafka: str | None = None, inert: str = "", dynamic: bool = False) -> bool:
    """A key whose value is `true` or `false`, in any case."""

    def parse(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("must be true or false")
        return text.lower() == "true"

    return cast("bool", Option(ConfigType.BOOLEAN, default, parse, "true or false", doc, kafka, inert, dynamic))


def string(
    default: str,
    *,
    doc: str,
    kafka: str | None = None,
    inert: str = "",
    dynamic: bool = False,
    check: Callable[[str], str] | None = None,
    allowed: str = "text",
    empty_is_unset: bool = False,
) -> str:
    """A key whose value is text. `check` returns the text to use, or raises ValueError with the reason.
    `empty_is_unset`: DescribeConfigs returns an empty text as null, as Kafka does for this key.
    """
    show = text_or_null if empty_is_unset else text_of
    option = Option(ConfigType.STRING, default, check or str, allowed, doc, kafka, inert, dynamic, show=show)
    return cast("str", option)


def text_or_null(value: object) -> str | None:
    """As `text_of`, None for the empty text too."""
    return text_of(value) or None


def password(*, doc: str, inert: str = "", check: Callable[[str], str] | None = None) -> str:
    """A key whose value is a secret: no answer, log line or error shows it. `check` as for `string`; what it raises
    must not show it either.
    """
    return cast("str", Option(ConfigType.PASSWORD, "", check or str, "text", doc, inert=inert))


def choice(
    default: str, *choices: str, doc: str, kafka: str | None = None, inert: str = "", dynamic: bool = False
) -> str:
    """A key whose value is one of a few words, spelled exactly as declared."""
    allowed = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be {allowed}")
        return text

    return cast("str", Option(ConfigType.STRING, default, parse, allowed, doc, kafka, inert, dynamic))


def words(
    default: Sequence[str],
    *choices: str,
    doc: str,
    kafka: str | None = None,
    inert: str = "",
    dynamic: bool = False,
    at_least_one: bool = False,
    unusual: Callable[[object], str] | None = None,
    as_text: bool = False,
) -> tuple[str, ...]:
    """A key whose value is a comma-separated list, each item one of `choices` (any text when there are none).
    `as_text`: DescribeConfigs returns it as a text, null when it is empty, as Kafka does for this key.
    """
    allowed = f"a list of {', '.join(choices)}" if choices else "a comma-separated list"

    def parse(text: str) -> tuple[str, ...]:
        items = tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
        if choices and not set(items) <= set(choices):
            raise ValueError(f"must be {allowed}")
        if at_least_one and not items:
            raise ValueError("must not be empty")
        return items

    kind, show = (ConfigType.STRING, text_or_null) if as_text else (ConfigType.LIST, text_of)
    option = Option(kind, tuple(default), parse, allowed, doc, kafka, inert, dynamic, unusual, show=show)
    return cast("tuple[str, ...]", option)


def words_or(fallback: tuple[str, ...], *, doc: str, kafka: str | None = None) -> tuple[str, ...]:
    """A list, of the type of its fallback; the value of `fallback`, another key, when it is not set. Never empty."""
    source = cast("Option", fallback)
    option = Option(source.kind, None, source.parse, source.allowed, doc, kafka, coarser=((source, 1),))
    return cast("tuple[str, ...]", option)


def parsed(
    default: str,
    parse: Callable[[str], _T],
    *,
    kind: ConfigType,
    doc: str,
    allowed: str,
    kafka: str | None = None,
    dynamic: bool = False,
    show: Callable[[object], str | None] = text_of,
) -> _T:
    """A key with its own syntax. `parse` raises ValueError with the reason; `show` is its inverse."""
    return cast("_T", Option(kind, parse(default), parse, allowed, doc, kafka, is_dynamic=dynamic, show=show))


def inherited(from_broker: _T, *, doc: str = "", kafka: str | None = None) -> _T:
    """A topic's key that takes type, bounds and default from a broker's key:
    `inherited(BrokerConfig.log_segment_bytes)`.
    """
    source = cast("Option", from_broker)
    option = Option(
        source.kind,
        source.default,
        source.parse,
        source.allowed,
        doc or source.doc,
        kafka if kafka is not None else source.kafka,
        source.inert,
        True,
        source.unusual,
        inherits=source,
        show=source.show,
    )
    return cast("_T", option)
