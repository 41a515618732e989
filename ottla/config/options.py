"""How a key is declared, and what is derived from the declaration.

A key is one statement in the body of an `Options` class, and that statement is all there is: parsing, default, bounds,
documentation, the answer to DescribeConfigs and the generated pages come from it.

    class Example(Options):
        \"\"\"Storage\"\"\"

        log_segment_bytes = int32(1 << 30, at_least=1024, doc="Size in bytes at which a segment is rolled.")

The key is the name with dots for underscores, the class's docstring is the heading in the documentation. To a type
checker `config.log_segment_bytes` is an `int`; while the program runs it is a plain attribute of the instance, and
`Example.log_segment_bytes` (on the class) is the `Option` that declared it, so that another declaration can refer to
it.

A key may fall back on coarser ones: `log.retention.ms` on `log.retention.minutes` on `log.retention.hours`; the first
one that is set wins, and its value is multiplied by the factor that stands with it.

This module knows no key and no file.
"""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from ottla.config.errors import ConfigError

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_T = TypeVar("_T")


class ConfigType(enum.IntEnum):
    """Type of a value, with the numbers of DescribeConfigs (Kafka's `ConfigResponse.Type`)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(enum.IntEnum):
    """Who set a value, with the numbers of DescribeConfigs (Kafka's `DescribeConfigsResponse.ConfigSource`)."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class ConfigSynonym(NamedTuple):
    """A key that had a say in a value, in the order in which they are asked."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key as DescribeConfigs tells it. `value` is None for secrets and for what is not set."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    is_default: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    documentation: str


class OriginKind(enum.IntEnum):
    """The places that can set a key, the weakest first."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    OVERRIDE = 3
    TOPIC = 4


class Origin(NamedTuple):
    """Where a value was set. `str(origin)` is `server.properties:7`, `environment KAFKA_NODE_ID`, `--override`."""

    kind: OriginKind
    where: str

    def __str__(self) -> str:
        return self.where


DEFAULT_ORIGIN = Origin(OriginKind.DEFAULT, "default")


class Given(NamedTuple):
    """A text that somebody set, and where."""

    text: str
    origin: Origin


def text_of(value: object) -> str | None:
    """A value as it would stand in server.properties; None for what is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


@dataclass(eq=False)
class Option:
    """The declaration of one key. Made by the functions below, in the body of an `Options` class, never changed
    later.
    """

    kind: ConfigType
    default: object
    parse: Callable[[str], object]
    allowed: str
    doc: str
    kafka: str | None = None
    inert: str = ""
    is_dynamic: bool = False
    unusual: Callable[[object], str] | None = None
    coarser: tuple[tuple[Option, int], ...] = ()
    inherits: Option | None = None
    show: Callable[[object], str | None] = text_of
    attribute: str = ""
    section: str = ""
    key: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        if not self.key:
            self.attribute = name
            self.key = name.replace("_", ".")

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is a secret, which no answer, log line or error may show."""
        return self.kind is ConfigType.PASSWORD

    def read(self, given: Given) -> object:
        """The value of a text. Raises ConfigError, one line that says what is allowed."""
        text = given.text if self.is_sensitive else given.text.strip()
        try:
            return self.parse(text)
        except ConfigError:
            raise
        except ValueError as error:
            shown = "[hidden]" if self.is_sensitive else given.text
            raise ConfigError(
                self.key, shown, str(error) or f"must be {self.allowed}", origin=str(given.origin)
            ) from None

    def effective(self, values: Mapping[str, object]) -> object:
        """The value that counts: of this key, or of the first coarser key that has one. `values` holds what is set."""
        if self.key in values:
            return values[self.key]
        for option, factor in self.coarser:
            value = values.get(option.key)
            if value is not None:
                return _scaled(value, factor)
        if self.coarser:
            option, factor = self.coarser[-1]
            return _scaled(option.default, factor)
        return self.default

    def chain(self) -> tuple[Option, ...]:
        """This key and those it falls back on, in the order in which they are asked."""
        return (self, *(option for option, _ in self.coarser))


def _scaled(value: object, factor: int) -> object:
    if factor == 1 or not isinstance(value, int):
        return value
    return value * factor if value >= 0 else -1  # a negative limit means "none", in every unit


class _Declared(type):
    """Takes the declarations out of a class body.

    They must not stay attributes of the class: an instance attribute that hides a class attribute costs the interpreter
    its fast path, and the hot path reads these. `Class.name` still finds the declaration, by `__getattr__`.
    """

    def __new__(
        mcs: type[_Declared], name: str, parents: tuple[type, ...], body: dict[str, Any]
    ) -> _Declared:  # a class body holds anything
        own = {key: value for key, value in body.items() if isinstance(value, Option)}
        for attribute in own:
            del body[attribute]
        cls = super().__new__(mcs, name, parents, body)
        section = inspect.cleandoc(cls.__doc__ or name).partition("\n")[0].rstrip(".")
        table: dict[str, Option] = {}
        for parent in parents:
            table.update(getattr(parent, "by_key", {}))
        for attribute, option in own.items():
            option.__set_name__(cls, attribute)
            option.section = option.section or section
            table[option.key] = option
        cls.by_key = table
        return cls

    by_key: dict[str, Option]

    def __getattr__(cls, name: str) -> Option:
        if not name.startswith("__"):
            for option in cls.by_key.values():
                if option.attribute == name:
                    return option
        raise AttributeError(name)


class Options(metaclass=_Declared):
    """A group of keys. `by_key` is the table of all declarations, those of the parent classes first."""

    by_key: ClassVar[dict[str, Option]]

    def assign(self, values: Mapping[str, object]) -> None:
        """Set one attribute per declared key to the value that counts. `values`: what is set, by key, parsed."""
        for option in self.by_key.values():
            setattr(self, option.attribute, option.effective(values))


# --- declarations: one function per type -----------------------------------------------------------------------------


def _integer(low: int, high: int) -> tuple[Callable[[str], int], str]:
    if high in (INT_MAX, LONG_MAX):
        allowed = "an integer" if low in (-INT_MAX - 1, -LONG_MAX - 1) else f"an integer of at least {low}"
    else:
        allowed = f"an integer from {low} to {high}"

    def parse(text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
            raise ValueError(f"must be {allowed}")
        value = int(text)
        if not low <= value <= high:
            limit = f", and at most {high}" if value > high and allowed.startswith("an integer of") else ""
            raise ValueError(f"must be {allowed}{limit}")
        return value

    return parse, allowed


def int32(
    default: int,
    *,
    doc: str,
    at_least: int = 0,
    at_most: int = INT_MAX,
    kafka: str | None = None,
    inert: str = "",
    dynamic: bool = False,
    unusual: Callable[[object], str] | None = None,
) -> int:
    """A key whose value is a 32-bit integer.

    `kafka`: Apache Kafka's default, where ours differs. `inert`: why the key is accepted and has no effect.
    `dynamic`: may be changed while the broker runs. `unusual`: says in one line what is odd about a value, or
    nothing.
    """
    parse, allowed = _integer(at_least, at_most)
    return cast("int", Option(ConfigType.INT, default, parse, allowed, doc, kafka, inert, dynamic, unusual))


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
    parse, allowed = _integer(at_least, at_most)
    return cast("int", Option(ConfigType.LONG, default, parse, allowed, doc, kafka, inert, dynamic, unusual))


def finer(
    *coarser: tuple[int | None, int],
    doc: str,
    at_least: int = 0,
    bits: int = 64,
    kafka: str | None = None,
    dynamic: bool = False,
) -> int:
    """An integer key that wins over coarser ones: each of them with the factor that turns its unit into this one."""
    parse, allowed = _integer(at_least, LONG_MAX if bits == 64 else INT_MAX)
    kind = ConfigType.LONG if bits == 64 else ConfigType.INT
    chain = tuple((cast("Option", option), factor) for option, factor in coarser)
    return cast("int", Option(kind, None, parse, allowed, doc, kafka, "", dynamic, coarser=chain))


def maybe_int32(*, doc: str, at_least: int = 0, inert: str = "", dynamic: bool = False) -> int | None:
    """A 32-bit integer key that may stay unset (None)."""
    parse, allowed = _integer(at_least, INT_MAX)
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
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"must be {allowed}") from None
        if not at_least <= value <= at_most:  # also refuses NaN
            raise ValueError(f"must be {allowed}")
        return value

    return cast("float", Option(ConfigType.DOUBLE, default, parse, allowed, doc, inert=inert, is_dynamic=dynamic))


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
) -> str:
    """A key whose value is text. `check` returns the text to use, or raises ValueError with the reason."""
    return cast("str", Option(ConfigType.STRING, default, check or str, allowed, doc, kafka, inert, dynamic))


def password(*, doc: str, inert: str = "") -> str:
    """A key whose value is a secret: no answer, log line or error shows it."""
    return cast("str", Option(ConfigType.PASSWORD, "", str, "text", doc, inert=inert))


def choice(
    default: str, *choices: str, doc: str, kafka: str | None = None, inert: str = "", dynamic: bool = False
) -> str:
    """A key whose value is one of a few words, spelled exactly so."""
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
) -> tuple[str, ...]:
    """A key whose value is a comma-separated list, each item one of `choices` (any text when there are none)."""
    allowed = f"a list of {', '.join(choices)}" if choices else "a comma-separated list"

    def parse(text: str) -> tuple[str, ...]:
        items = tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
        if choices and not set(items) <= set(choices):
            raise ValueError(f"must be {allowed}")
        if at_least_one and not items:
            raise ValueError("must not be empty")
        return items

    return cast(
        "tuple[str, ...]",
        Option(ConfigType.LIST, tuple(default), parse, allowed, doc, kafka, inert, dynamic),
    )


def words_or(fallback: tuple[str, ...], *, doc: str, kafka: str | None = None) -> tuple[str, ...]:
    """A comma-separated list; the value of `fallback`, another key, when it is not set. Never empty."""
    source = cast("Option", fallback)
    option = Option(ConfigType.LIST, None, source.parse, source.allowed, doc, kafka, coarser=((source, 1),))
    return cast("tuple[str, ...]", option)


def parsed(
    default: str,
    parse: Callable[[str], _T],
    *,
    kind: ConfigType,
    doc: str,
    allowed: str,
    kafka: str | None = None,
    show: Callable[[object], str | None] = text_of,
) -> _T:
    """A key with a form of its own. `parse` raises ValueError with the reason, `show` is its inverse; `default` is
    text.
    """
    return cast("_T", Option(kind, parse(default), parse, allowed, doc, kafka, show=show))


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
