"""`ottla tls make`: an authority, a server's and clients' certificates, and the properties files that use them.

For tests and small networks: the authority's key is in the same directory as the certificates that it has signed, and
certificates are never renewed.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import click

from ottla.cli.failures import Failure, file_errors
from ottla.cli.parameters import FilePath, Number

AUTHORITY, AUTHORITY_KEY, SERVER = "ca.pem", "ca.key", "server.pem"
SERVER_PROPERTIES, CLIENT_PROPERTIES = "server.properties", "client.properties"
DEFAULT_HOSTS = ("localhost", "127.0.0.1", "::1")
PORT = 9093
MOST_DAYS = 36_500
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9.:*_-]{1,253}")
_ESCAPE = re.compile(r"\\(?:(?P<needless>[:=#!])|.)")
_TAKEN = ("ca", "server", "client")


@click.group(short_help="Make certificates for TLS.")
def tls() -> None:
    """Make certificates for TLS: for tests and small networks, without an authority of your own."""


@tls.command(short_help="Make an authority, a server's and clients' certificates.")
@click.argument("directory", type=FilePath(path_type=Path, file_okay=False))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name or address by which clients reach the broker. May be repeated. "
    "localhost, 127.0.0.1 and ::1 are always among them.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="Make a certificate for the client CN=NAME. May be repeated. Without any, clients show no certificate.",
)
@click.option("--days", type=Number(1, MOST_DAYS), default=365, show_default=True, help="How long they are valid.")
def make(directory: Path, hosts: tuple[str, ...], clients: tuple[str, ...], days: int) -> None:
    """Write to DIRECTORY: ca.pem with the authority that clients trust, server.pem with the broker's key and
    certificate, NAME.pem with those of each client, server.properties and client.properties. Nothing that exists is
    written over.

    \b
    Examples:
      ottla tls make ./tls --host kafka.example.net
      ottla tls make ./tls --client alice --client bob
      ottla serve ./tls/server.properties
    """
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise Failure(f"--host {host}: must be a name or an address")
    for name in clients:
        if not _CLIENT.fullmatch(name) or name in _TAKEN:
            raise Failure(f"--client {name}: must be letters, digits, dots and dashes, and not {', '.join(_TAKEN)}")
    try:
        from ottla.cli.certificates import Authority
    except ImportError:
        raise Failure("needs the package cryptography: pip install 'ottla[security]'") from None
    place = directory.absolute()
    authority = Authority("Ottla", datetime.now(UTC), days)
    try:
        server = authority.sign("CN=server", hosts=tuple(dict.fromkeys((*hosts, *DEFAULT_HOSTS))))
        signed = {name: authority.sign(f"CN={name}") for name in dict.fromkeys(clients)}
    except ValueError as error:
        raise Failure(f"--host: {error}") from None
    own = authority.pem
    public = {AUTHORITY: own.certificate}
    secret = {AUTHORITY_KEY: own.key, SERVER: server.key + server.certificate}
    secret |= {f"{name}.pem": one.key + one.certificate for name, one in signed.items()}
    public[SERVER_PROPERTIES] = _server_properties(place, bool(signed)).encode()
    public[CLIENT_PROPERTIES] = _client_properties(place, next(iter(signed), "")).encode()
    public |= {f"{name}.properties": _client_properties(place, name).encode() for name in signed}
    with file_errors():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (*secret, *public):
            if (directory / name).exists():
                raise Failure(f"{directory / name} exists, and nothing is written over: name an empty directory")
        for contents, mode in ((secret, 0o600), (public, 0o644)):
            for name, content in contents.items():
                _write(directory / name, content, mode)
    click.echo(f"the broker:  ottla serve {directory / SERVER_PROPERTIES}")
    click.echo(f"a client:    its keys are in {directory / CLIENT_PROPERTIES}; it trusts {directory / AUTHORITY}")
    if signed:
        click.echo(f"each client: {', '.join(f'{name}.properties (User:CN={name})' for name in signed)}")


def _write(path: Path, content: bytes, mode: int) -> None:
    """Open a new file. Raises OSError, also FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _server_properties(place: Path, asks_for_certificates: bool) -> str:
    return _properties(
        {
            "listeners": f"SSL://:{PORT}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(place / SERVER),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(place / AUTHORITY),
            "ssl.client.auth": "required" if asks_for_certificates else "none",
        }
    )


def _client_properties(place: Path, name: str) -> str:
    keys = {
        "bootstrap.servers": f"localhost:{PORT}",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(place / AUTHORITY),
    }
    if name:
        keys |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(place / f"{name}.pem")}
    return _properties(keys)


def _properties(keys: dict[str, str]) -> str:
    """The lines of a properties file. `:`, `=`, `#` and `!` are not escaped in values, where they have no meaning, so
    that people can read them; Java and the library escape them.
    """
    import javaproperties

    values = {key: javaproperties.join_key_value("", value, "") for key, value in keys.items()}
    return "".join(f"{key}={_ESCAPE.sub(_unless_needless, value)}\n" for key, value in values.items())


def _unless_needless(escape: re.Match[str]) -> str:
    return escape["needless"] or escape[0]
