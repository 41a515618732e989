"""Options of the client by Kafka's names: `--command-config FILE`, `--producer-property` and `--consumer-property`.

The precedence, from the lowest: the command's own defaults (`acks=all` of `produce`), the environment (`OTTLA_*`), the
file, a property, an option that was given (`--acks 1`). Many commands share a file, so its options for other kinds of
clients are ignored. A property is for one command, and has to be an option of that command's client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.failures import Failure, WrongOption

if TYPE_CHECKING:
    from ottla.client.options import ClientOptions

FILE_KEY = "ottla.command-config"
"""The key of the context for the options of the file."""
PROTOCOL_KEY = "ottla.security-protocol"
"""The key of the context for `--security-protocol`."""
SERVERS = "bootstrap.servers"
MAX_PASSWORD_BYTES = 64 * 1024

CODE = ("key_serializer", "value_serializer", "key_deserializer", "value_deserializer", "interceptors")
"""Options whose values are code: in Java the name of a class, here a function."""


def read_file(path: str) -> dict[str, str]:
    """The options in a properties file, by Kafka's names; config providers insert values from elsewhere (KIP-421).

    Raises Failure, in one line, for an option that no client has.
    """
    from ottla.config.errors import ConfigError
    from ottla.config.providers import resolve
    from ottla.config.sources import read_properties

    try:
        given = resolve(read_properties(path), os.environ)
    except ConfigError as error:
        raise Failure(str(error)) from None
    read: dict[str, str] = {}
    for name, one in given.items():
        problem = _problem(name, _kinds())
        if problem:
            raise Failure(f"{problem} ({one.origin})")
        read[SERVERS if _canonical(name) == "bootstrap_servers" else name] = one.text
    return read


def read_environment(environ: Mapping[str, str], file: Mapping[str, str]) -> dict[str, str]:
    """The options that variables set and the file does not. Raises Failure for a password file that cannot be read.

    If the file says who logs in (an option of SASL other than the mechanism), the variables of user and password are
    ignored.
    """
    from ottla.config.sources import COMMAND_VARIABLES

    given = {option: environ[name] for name, option in COMMAND_VARIABLES.items() if option and environ.get(name)}
    password_file = environ.get("OTTLA_SASL_PASSWORD_FILE")
    if password_file:
        if "sasl.password" in given:
            raise Failure("OTTLA_SASL_PASSWORD and OTTLA_SASL_PASSWORD_FILE: set one of them")
        given["sasl.password"] = _read_password(password_file)
    known = {_canonical(name) for name in file}
    if any(name.startswith("sasl_") and name != "sasl_mechanism" for name in known):
        known |= {"sasl_username", "sasl_password"}
    return {name: value for name, value in given.items() if _canonical(name) not in known}


def _read_password(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PASSWORD_BYTES + 1)
        if len(data) > MAX_PASSWORD_BYTES:
            raise Failure(f"OTTLA_SASL_PASSWORD_FILE: {path} is longer than {MAX_PASSWORD_BYTES} bytes")
        return data.decode().rstrip("\r\n")
    except OSError as error:
        raise Failure(f"OTTLA_SASL_PASSWORD_FILE: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"OTTLA_SASL_PASSWORD_FILE: {path} is not UTF-8") from None


def options_of(
    kind: type[ClientOptions],
    servers: str,
    defaults: Mapping[str, object],
    *,
    properties: Mapping[str, str] | None = None,
    option: str = "",
    chosen: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """The keyword arguments of a client of this kind. `option` names the option that gave `properties`, for messages.
    Entries of `chosen` that are None were not given. Raises WrongOption for an error on the command line, Failure for
    one in the file or the environment.
    """
    merged: dict[str, Any] = dict(defaults)
    context = click.get_current_context(silent=True)
    file: Mapping[str, str] = {} if context is None else context.meta.get(FILE_KEY, {})
    spelled: dict[str, str] = {}
    for name, value in file.items():
        if not _problem(name, (kind,)) and name != SERVERS:
            merged[_canonical(name)] = value
            spelled[_canonical(name)] = name
    without_command_line = dict(merged)
    for name, value in (properties or {}).items():
        problem = _problem(name, (kind,))
        if _canonical(name) == "bootstrap_servers":
            problem = "say it with --bootstrap-server"
        elif problem and not _problem(name, _kinds()):
            problem = f"{name} is an option of other clients, not of this one"
        if problem:
            raise WrongOption(f"{option}: {problem}")
        merged[_canonical(name)] = value
        spelled[_canonical(name)] = name
    protocol = None if context is None else context.meta.get(PROTOCOL_KEY)
    for name, chosen_value in {"security_protocol": protocol, **(chosen or {})}.items():
        if chosen_value is not None:
            merged[name] = chosen_value
            spelled.pop(name, None)
    message = _refusal(kind, servers, merged)
    if message is not None:
        from dataclasses import fields

        is_of_command_line = message != _refusal(kind, servers, without_command_line)
        for name in sorted((one.name for one in fields(kind)), key=len, reverse=True):
            message = message.replace(name, spelled.get(name, name.replace("_", ".")))
        raise (WrongOption if is_of_command_line else Failure)(message)
    return merged


def _refusal(kind: type[ClientOptions], servers: str, options: dict[str, Any]) -> str | None:
    """The error of the client about these options."""
    from ottla.client.options import read_options

    try:
        read_options(kind, servers, options)
    except ValueError as error:
        return str(error)
    return None


def _kinds() -> tuple[type[ClientOptions], ...]:
    from ottla.client.consumer_options import ConsumerOptions
    from ottla.client.options import AdminOptions
    from ottla.client.producer_options import ProducerOptions
    from ottla.client.share_consumer_options import ShareConsumerOptions

    return ProducerOptions, ConsumerOptions, ShareConsumerOptions, AdminOptions


def _problem(name: str, kinds: tuple[type[ClientOptions], ...]) -> str:
    """The error for an option that none of these clients has; empty if one of them has it."""
    from ottla.client.options import problem_of

    canonical = _canonical(name)
    if canonical in CODE:
        return f"{name} names code, which has no place here: leave it out"
    problems = [problem_of(kind, name) for kind in kinds]
    return "" if "" in problems else problems[0]


def _canonical(name: str) -> str:
    from ottla.client.options import canonical_name

    return canonical_name(name)
