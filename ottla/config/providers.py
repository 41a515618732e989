"""Kafka's config providers (KIP-297, 632, 887): values that are stored elsewhere, mostly secrets.

    config.providers=env,files
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.env.param.allowlist.pattern=KAFKA_SECRET_.*
    config.providers.files.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.files.param.allowed.paths=/etc/ottla
    ssl.keystore.password=${files:/etc/ottla/secrets.properties:keystore}
    listener.name.sasl.plain.sasl.jaas.config=...PlainLoginModule required user_alice="${env:KAFKA_SECRET_ALICE}";

`${NAME:KEY}` and `${NAME:PATH:KEY}` are replaced anywhere in a value, once: the inserted text is not searched again.
A name that is no provider stays as it is, as in Kafka. A value that a provider does not have is an error (Kafka leaves
the text `${...}`, which would then be a listener's password). Errors name the key and the place, never a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ottla.config.errors import ConfigError
from ottla.config.options import Given
from ottla.config.sources import FILE_MAX_BYTES, read_properties

KEY = "config.providers"
_VARIABLE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_CLASSES = ("EnvVarConfigProvider", "FileConfigProvider", "DirectoryConfigProvider")
_ALLOWED_PATHS, _ALLOWLIST = "allowed.paths", "allowlist.pattern"

Provider = Callable[[str, str], str]
"""A function that returns the value of a path and a key. Raises ValueError with what is wrong."""


def resolve(given: Mapping[str, Given], environ: Mapping[str, str]) -> dict[str, Given]:
    """The given values, with the variables of their providers replaced, and without the providers' own keys.

    Raises ConfigError.
    """
    own = {key: value for key, value in given.items() if key == KEY or key.startswith(f"{KEY}.")}
    rest = {key: value for key, value in given.items() if key not in own}
    if KEY not in own:
        return rest | {key: value for key, value in own.items() if key != KEY}
    names = dict.fromkeys(name.strip() for name in own[KEY].text.split(",") if name.strip())
    providers = {name: _provider(name, own, environ) for name in names}
    return {key: _replaced(key, value, providers) for key, value in rest.items()}


def _replaced(key: str, value: Given, providers: Mapping[str, Provider]) -> Given:
    def replace(match: re.Match[str]) -> str:
        provider = providers.get(match[1])
        if provider is None:
            return match[0]
        try:
            return provider(match[2] or "", match[3])
        except ValueError as error:
            raise ConfigError(key, match[0], str(error), origin=str(value.origin)) from None

    return Given(_VARIABLE.sub(replace, value.text), value.origin)


def _provider(name: str, own: Mapping[str, Given], environ: Mapping[str, str]) -> Provider:
    class_key = f"{KEY}.{name}.class"
    given = own.get(class_key)
    kind = "" if given is None else given.text.strip().rpartition(".")[2]
    if kind not in _CLASSES:
        shown = None if given is None else given.text
        origin = str((given or own[KEY]).origin)
        package = "org.apache.kafka.common.config.provider"
        raise ConfigError(class_key, shown, f"must be {package}. with one of {', '.join(_CLASSES)}", origin=origin)
    parameters = {
        key.removeprefix(f"{KEY}.{name}.param."): value
        for key, value in own.items()
        if key.startswith(f"{KEY}.{name}.param.")
    }
    if kind == "EnvVarConfigProvider":
        return partial(_from_environment, environ, _pattern(name, parameters.get(_ALLOWLIST)))
    allowed = _paths(name, parameters.get(_ALLOWED_PATHS))
    return partial(_from_file if kind == "FileConfigProvider" else _from_directory, allowed)


def _pattern(name: str, given: Given | None) -> re.Pattern[str] | None:
    if given is None:
        return None
    try:
        return re.compile(given.text)
    except re.error as error:
        key = f"{KEY}.{name}.param.{_ALLOWLIST}"
        raise ConfigError(key, given.text, f"is no regular expression: {error}", origin=str(given.origin)) from None


def _paths(name: str, given: Given | None) -> list[Path] | None:
    if given is None or not given.text:
        return None
    paths = [Path(os.path.normpath(text.strip())) for text in given.text.split(",")]
    for path in paths:
        if not path.is_absolute() or not path.exists():
            key = f"{KEY}.{name}.param.{_ALLOWED_PATHS}"
            raise ConfigError(key, given.text, f"{path} must be absolute and exist", origin=str(given.origin))
    return paths


def _from_environment(environ: Mapping[str, str], allowed: re.Pattern[str] | None, path: str, key: str) -> str:
    if path:
        raise ValueError("the environment has no paths; write ${NAME:VARIABLE}")
    if allowed is not None and not allowed.fullmatch(key):
        raise ValueError(f"the variable {key} is not one of {_ALLOWLIST}={allowed.pattern}")
    if key not in environ:
        raise ValueError(f"the variable {key} is not set")
    return environ[key]


def _from_file(allowed: list[Path] | None, path: str, key: str) -> str:
    if not path:
        raise ValueError("a file has to be named; write ${NAME:/PATH:KEY}")
    try:
        values = read_properties(_permitted(allowed, Path(path)))
    except ConfigError as error:
        raise ValueError(f"the file {error.reason}") from None
    if key not in values:
        raise ValueError(f"the file has no key {key}")
    return values[key].text


def _from_directory(allowed: list[Path] | None, path: str, key: str) -> str:
    if not path or not key or "/" in key or key in (".", ".."):
        raise ValueError("a directory and a file in it have to be named; write ${NAME:/PATH:FILE}")
    file = _permitted(allowed, Path(path)) / key
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from None
    if len(content) > FILE_MAX_BYTES:
        raise ValueError(f"the file is longer than {FILE_MAX_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8") from None


def _permitted(allowed: list[Path] | None, path: Path) -> Path:
    """The path, if its text is below an allowed one. Links are followed without a check, as in Kafka."""
    if allowed is None:
        return path
    normal = Path(os.path.normpath(path))
    if not any(normal.is_relative_to(one) for one in allowed):
        raise ValueError(f"it is not below {_ALLOWED_PATHS}={','.join(map(str, allowed))}")
    return normal
