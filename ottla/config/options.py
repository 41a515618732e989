"""The declaration of a key, and what is derived from it.

A key is one statement in the body of an `Options` class. Parsing, default, bounds, documentation, the answer to
DescribeConfigs and the generated pages all come from that statement.

    class Example(Options):
        \"\"\"Storage\"\"\"

        log_segment_bytes = int32(1 << 30, at_least=1024, doc="Size in bytes at which a segment is rolled.")

The key is the name with dots for underscores, the class's docstring is the heading in the documentation. To a type
checker `config.log_segment_bytes` is an `int`; while the program runs it is a plain attribute of the instance, and
`Example.log_segment_bytes` (on the class) is the `Option` that declared it, so that another declaration can refer to
it.

A key may fall back on coarser ones: `log.retention.ms` on `log.retention.minutes` on `log.retention.hours`; the first
one that is set wins, and its value is multiplied by the factor declared with it.

This module knows no key and no file.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from ottla.config.errors import ConfigError


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
    """The source of a value, with the numbers of DescribeConfigs (Kafka's `DescribeConfigsResponse.ConfigSource`)."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """A key from which a value may come. Synonyms are in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key as DescribeConfigs returns it. `value` is None for secrets and for keys that are not set."""

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
    """The text of a value that was set, and where."""

    text: str
    origin: Origin


def text_of(value: object) -> str | None:
    """A value as it would be in server.properties; None if it is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


class Option:
    """The declaration of one key. Made by the functions of `declare.py`, in the body of an `Options` class; never
    changed later.

    `allowed` describes what `parse` accepts. `kafka` is Apache Kafka's default where Ottla's differs. `inert` is the
    reason why the key has no effect, or empty. `is_dynamic`: it may be changed while the broker runs. `unusual` returns
    a remark about an odd value, or an empty text. `coarser` are the keys that are used when this one is not set, each
    with the factor for its value. `inherits` is the broker's key from which a topic's key takes its default. `show` is
    the inverse of `parse`.
    """

    # Not a dataclass: importing `dataclasses` takes a tenth of the time in which a broker starts.
    def __init__(
        self,
        kind: ConfigType,
        default: object,
        parse: Callable[[str], object],
        allowed: str,
        doc: str,
        kafka: str | None = None,
        inert: str = "",
        is_dynamic: bool = False,
        unusual: Callable[[object], str] | None = None,
        coarser: tuple[tuple[Option, int], ...] = (),
        inherits: Option | None = None,
        show: Callable[[object], str | None] = text_of,
        key: str = "",
    ) -> None:
        self.kind = kind
        self.default = default
        self.parse = parse
        self.allowed = allowed
        self.doc = doc
        self.kafka = kafka
        self.inert = inert
        self.is_dynamic = is_dynamic
        self.unusual = unusual
        self.coarser = coarser
        self.inherits = inherits
        self.show = show
        self.key = key
        self.attribute = ""
        self.section = ""

    def __set_name__(self, owner: type, name: str) -> None:
        if not self.key:
            self.attribute = name
            self.key = name.replace("_", ".")

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is a secret, which no answer, log line or error may show."""
        return self.kind is ConfigType.PASSWORD

    def read(self, given: Given) -> object:
        """The value of a text. Raises ConfigError, in one line with what is allowed."""
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
        """The effective value: of this key, or of the first coarser key that has one. `values`: those that are set."""
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
        """This key and those it falls back on, in order of precedence."""
        return (self, *(option for option, _ in self.coarser))


def _scaled(value: object, factor: int) -> object:
    if factor == 1 or not isinstance(value, int):
        return value
    return value * factor if value >= 0 else -1  # a negative limit means "none", in every unit


class _Declared(type):
    """The metaclass that moves the declarations out of a class body.

    They must not stay attributes of the class: the interpreter has no fast path for an instance attribute that hides a
    class attribute, and the hot path reads these. `Class.name` still finds the declaration, by `__getattr__`.
    """

    def __new__(
        mcs: type[_Declared], name: str, parents: tuple[type, ...], body: dict[str, Any]
    ) -> _Declared:  # a class body holds anything
        own = {key: value for key, value in body.items() if isinstance(value, Option)}
        for attribute in own:
            del body[attribute]
        cls = super().__new__(mcs, name, parents, body)
        section = (cls.__doc__ or name).strip().partition("\n")[0].rstrip(".")
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
        """Set one attribute per declared key to its effective value. `values`: the parsed ones that are set, by key."""
        for option in self.by_key.values():
            setattr(self, option.attribute, option.effective(values))
