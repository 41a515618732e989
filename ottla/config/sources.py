"""The sources of values: a server.properties, the environment, `--override`. Each value keeps its origin.

Later sources override earlier ones key by key: the file the defaults, the environment the file, `--override` all.
(In Kafka's own image one variable removes all defaults, KAFKA-17953; in Ottla it never does.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ottla.config.errors import ConfigError
from ottla.config.images import is_for_an_image
from ottla.config.options import Given, Origin, OriginKind

FILE_MAX_BYTES = 1 << 20
"""Longest server.properties that is read."""

_ENVIRONMENT_KEY = re.compile(r"KAFKA_(?:CFG_)?([A-Z0-9_]+)")
"""A key as Apache Kafka's image spells it, and as Bitnami's does."""

# Variables that images set for themselves, that container platforms put into every environment, or that clients read.
_NOT_KEYS = re.compile(
    r"KAFKA_(?:VERSION|HOME|USER|GROUP|SERVICE_(?:HOST|PORT.*)|PORT_\d+_(?:TCP|UDP).*|BOOTSTRAP_SERVERS?|BROKERS?)"
)


COMMAND_VARIABLES = {
    "OTTLA_BOOTSTRAP_SERVER": "bootstrap.servers",
    "OTTLA_SECURITY_PROTOCOL": "security.protocol",
    "OTTLA_SASL_MECHANISM": "sasl.mechanism",
    "OTTLA_SASL_USERNAME": "sasl.username",
    "OTTLA_SASL_PASSWORD": "sasl.password",
    "OTTLA_SASL_PASSWORD_FILE": "",
    "OTTLA_SSL_TRUSTSTORE_LOCATION": "ssl.truststore.location",
    "OTTLA_SSL_KEYSTORE_LOCATION": "ssl.keystore.location",
    "OTTLA_COMMAND_CONFIG": "",
}
"""The variables that the commands read, with the client option that each sets. They are not keys of a broker."""


def read_properties(path: str | Path) -> dict[str, Given]:
    """The keys of a file in Java's properties syntax. A key that is set twice has its last value, as in Java.

    The file is UTF-8, or else Latin-1, as in Java. Raises ConfigError for a file that cannot be read or is broken.
    """
    import javaproperties  # it imports half the standard library, which a start without a file does not need

    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(str(path), None, f"cannot be read: {error.strerror}") from None
    if len(data) > FILE_MAX_BYTES:
        raise ConfigError(str(path), None, f"is longer than {FILE_MAX_BYTES} bytes, so it is no server.properties")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    given: dict[str, Given] = {}
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue) and element.key:
                origin = Origin(OriginKind.FILE, f"{path.name}:{line}")
                given[str(element.key)] = Given(str(element.value), origin)
            line += _lines(element.source)
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"{path.name}:{line}", None, f"{error.escape!r} is not a \\uXXXX escape") from None
    return given


def _lines(source: str) -> int:
    return len(re.findall(r"\r\n|\r|\n", source))


def read_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """The keys that the environment sets: `KAFKA_LOG_RETENTION_MS` is `log.retention.ms`.

    `_` means a dot, `__` means `_`, `___` means `-`, as in Kafka's own image. `KAFKA_CFG_X_Y` is Bitnami's spelling of
    `KAFKA_X_Y`; `OTTLA_X_Y` is a shorter one of `KAFKA_OTTLA_X_Y`, for the keys `ottla.x.y`. Variables that container
    platforms set are ignored; those of other images are read by `images.py`.

    Raises ConfigError where two variables set a key to different values.
    """
    given: dict[str, Given] = {}
    for variable in sorted(environ):
        if _NOT_KEYS.fullmatch(variable) or variable in COMMAND_VARIABLES or is_for_an_image(variable):
            continue
        match = _ENVIRONMENT_KEY.fullmatch(variable)
        if match:
            key = _key_of(match[1])
        elif re.fullmatch(r"OTTLA_[A-Z0-9_]+", variable):
            key = _key_of(variable)
        else:
            continue
        if key in given and given[key].text != environ[variable]:
            reason = (
                f"is set to another value by {str(given[key].origin).removeprefix('environment ')}; remove one of them"
            )
            raise ConfigError(variable, None, reason, origin="environment")
        given[key] = Given(environ[variable], Origin(OriginKind.ENVIRONMENT, f"environment {variable}"))
    return given


def _key_of(name: str) -> str:
    replaced = {"_": ".", "__": "_", "___": "-"}
    return re.sub(r"_+", lambda match: replaced.get(match[0], match[0]), name).lower()


def read_overrides(overrides: Mapping[str, str]) -> dict[str, Given]:
    """The keys that `--override` sets."""
    return {key: Given(value, Origin(OriginKind.OVERRIDE, "--override")) for key, value in overrides.items()}


def split_override(text: str) -> tuple[str, str]:
    """`key=value` as its two parts. Raises ConfigError for anything else."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError("--override", text, "must be key=value")
    return key.strip(), value


def split_overrides(texts: Iterable[str]) -> dict[str, str]:
    """The keys of several `key=value`; of one key the last wins. Raises ConfigError."""
    return dict(map(split_override, texts))
