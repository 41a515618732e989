"""A small public key infrastructure in a folder, made once per process: an authority, a server, clients, and bad ones.

    pki = certificates()            # the same folder for all tests of this process
    BrokerProcess(directory, {"listeners": "SSL://127.0.0.1:0", **pki.server_overrides()})
    {"security.protocol": "SSL", "ssl.ca.location": str(pki.ca)}
    {..., "ssl.certificate.location": str(pki.client("alice").chain), "ssl.key.location": str(pki.client("alice").key)}

What stands in a server.properties is in `server_overrides`: PEM by file, whose key store is one file of key and chain.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import ssl
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from ottla.cli.certificates import Authority, Certificate

HOSTS = ("localhost", "127.0.0.1", "::1")
"""Names and addresses of the server's certificate."""


class Files(NamedTuple):
    """Of one certificate: its key, the certificate, and both in one file as Kafka's PEM key stores have it."""

    key: Path
    chain: Path
    store: Path


class Certificates:
    """See the module. Everything is made when it is first asked for, and kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority("Ottla tests", datetime.now(UTC), 10)
        self.ca = self._write("ca.pem", self.authority.pem.certificate)
        self._made: dict[str, Files] = {}

    @property
    def server(self) -> Files:
        """The server's certificate, for HOSTS."""
        return self.server_for("server", HOSTS)

    def server_for(self, name: str, hosts: Sequence[str]) -> Files:
        """Another certificate of a server."""
        return self._make(name, lambda: self.authority.sign(f"CN={name},O=Ottla", hosts=hosts))

    def client(self, name: str, subject: str = "") -> Files:
        """A client's certificate; its distinguished name is `CN=name,OU=clients,O=Ottla` if no other is given."""
        return self._make(name, lambda: self.authority.sign(subject or f"CN={name},OU=clients,O=Ottla"))

    def expired_client(self) -> Files:
        """A client's certificate of yesterday."""
        return self._make("expired", lambda: self._sign_expired("CN=expired"))

    def expired_server(self) -> Files:
        """A server's certificate of yesterday."""
        return self._make("expired-server", lambda: self._sign_expired("CN=old", HOSTS))

    def foreign_client(self) -> Files:
        """A client's certificate of an authority that nobody trusts."""
        other = Authority("Somebody else", datetime.now(UTC), 10)
        return self._make("foreign", lambda: other.sign("CN=alice,OU=clients,O=Ottla"))

    def encrypted(self, password: str) -> Files:
        """The server's certificate with an encrypted key; another one for each password."""
        return self._make(
            f"encrypted-{crc32(password.encode())}",
            lambda: self.authority.sign("CN=server,O=Ottla", hosts=HOSTS, key_password=password),
        )

    def server_overrides(self, prefix: str = "", *, client_auth: str = "none") -> dict[str, str]:
        """Keys of a broker; `prefix`, as `listener.name.internal.`, puts them on one listener."""
        keys = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.server.store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "ssl.client.auth": client_auth,
        }
        return {prefix + key: value for key, value in keys.items()}

    def client_context(self, files: Files | None = None) -> ssl.SSLContext:
        """Python's context of a client that trusts the authority, and shows a certificate if `files` are given."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if files is not None:
            context.load_cert_chain(files.store)
        return context

    def _sign_expired(self, subject: str, hosts: Sequence[str] = ()) -> Certificate:
        now = datetime.now(UTC)
        start, end = now - timedelta(days=2), now - timedelta(days=1)
        return self.authority.sign(subject, hosts=hosts, not_before=start, not_after=end)

    def _make(self, name: str, sign: Callable[[], Certificate]) -> Files:
        if name not in self._made:
            made = sign()
            self._made[name] = Files(
                self._write(f"{name}.key", made.key),
                self._write(f"{name}.pem", made.certificate),
                self._write(f"{name}-store.pem", made.key + made.certificate),
            )
        return self._made[name]

    def _write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path


@functools.cache
def certificates() -> Certificates:
    """The certificates of this process, in a folder that goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-certificates-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Certificates(folder)
