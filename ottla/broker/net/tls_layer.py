"""TLS between a socket's transport and a `Connection`: decrypts what is read, encrypts what is sent.

To the loop it is a protocol, to the connection a transport. The connection exists from the first moment, so that every
limit on connections counts those that have not finished their handshake, and one log line reports its end. asyncio's
TLS creates a protocol only when the handshake is done, keeps one context for as long as it listens, allocates a read
buffer of 256 KiB for each connection, and encrypts a whole answer, however long, before the first byte is sent.

Here reads go into one buffer for all connections, decrypted bytes directly to where the connection wants them, and an
answer is encrypted as the socket takes it: at most `UNSENT_BYTES` of ciphertext wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from ottla.broker.security.logins import TLS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.net.connection import Connection
    from ottla.broker.principal import Principal
    from ottla.broker.security.logins import Logins
    from ottla.protocol.types import Buffer

READ_BYTES = 64 << 10
"""The longest read of ciphertext: four TLS records. An incomplete record stays in memory."""
ENCIPHER_BYTES = 64 << 10
"""The part of an answer that is encrypted at a time."""
UNSENT_BYTES = 128 << 10
"""When so much ciphertext waits in the socket's transport, no more is produced."""
MOST_UNSENT_BYTES = 256 << 10
"""Above this, a client is closed that makes TLS itself answer again and again, by requests for new keys (KeyUpdate),
and does not take the answers: nothing else bounds them."""
HANDSHAKE = 0x16
"""The first byte of a TLS connection: the record type of a ClientHello."""
_HTTP_METHODS = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PRI ")

_BUFFER = memoryview(bytearray(READ_BYTES))
"""The read buffer of all connections: a read is consumed before another one begins."""


class Failure(NamedTuple):
    """Why a handshake failed: one word for the audit log, and a sentence for the log. The word contains nothing of the
    client's bytes.
    """

    word: str
    sentence: str


_NO_VERSION = Failure("version", "the client speaks no version of ssl.enabled.protocols")
_NOT_ACCEPTED = Failure("untrusted", "the client does not accept the broker's certificate")
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": Failure(
        "no_certificate", "the client shows no certificate, and ssl.client.auth is required"
    ),
    "UNSUPPORTED_PROTOCOL": _NO_VERSION,
    "VERSION_TOO_LOW": _NO_VERSION,
    "TLSV1_ALERT_PROTOCOL_VERSION": _NO_VERSION,
    "NO_SHARED_CIPHER": Failure("cipher", "the client has no cipher suite that this listener has"),
    "TLSV1_ALERT_UNKNOWN_CA": Failure("untrusted", "the client does not trust the broker's certificate (unknown CA)"),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _NOT_ACCEPTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": _NOT_ACCEPTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": Failure(
        "untrusted", "the client says that the broker's certificate has expired"
    ),
}
"""OpenSSL's reasons that an administrator can do something about."""


class Identity(Protocol):
    """A listener's TLS (`security/tls/listeners.py`)."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context for this connection."""

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The principal of this certificate. Raises an Exception with a readable text if it names none."""


class TlsLayer(asyncio.BufferedProtocol, asyncio.Transport):
    """See the module. `identity` belongs to the listener, `connection` is its protocol, `logins` counts handshakes."""

    def __init__(self, connection: Connection, identity: Identity, logins: Logins) -> None:
        super().__init__()
        self.connection = connection
        self._identity = identity
        self._logins = logins
        self._buffer = _BUFFER
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = identity.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._transport: asyncio.Transport | None = None
        self._backlog: deque[memoryview] = deque()
        """Plaintext that is not encrypted yet."""
        self._backlog_bytes = 0
        self._high = 0
        self._has_begun = False
        """Whether the client has sent anything."""
        self._is_ready = False
        """Whether the handshake is done."""
        self._is_paused = False
        self._is_full = False
        """Whether the socket's transport takes no more now."""
        self._has_told = False
        """Whether `pause_writing` of the connection was called."""
        self._is_closing = False
        self._has_failed = False
        """Whether TLS has failed: bytes that still come, until the turn and the connection end, are ignored."""
        self._is_planned = False

    # -- a protocol, to the socket's transport ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count a client that has connected."""
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES, low=0)
        self.connection.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection: the client has gone."""
        self._is_closing = True
        self._backlog.clear()
        self._backlog_bytes = 0
        self._transport = None
        self.connection.connection_lost(exc)

    def eof_received(self) -> bool:
        """Close: the client sends no more."""
        return self.connection.eof_received()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next read of ciphertext."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle `nbytes` of ciphertext."""
        if self._is_closing or self._has_failed:
            return
        if not self._has_begun:
            self._has_begun = True
            if self._buffer[0] != HANDSHAKE:
                self._fail(_describe_plaintext(bytes(self._buffer[: min(nbytes, 8)])))
                return
        self._incoming.write(self._buffer[:nbytes])
        if self._is_ready or self._shake_hands():
            self._decipher()

    def pause_writing(self) -> None:
        """Stop encrypting: the socket takes no more."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Encrypt more: the socket has taken everything."""
        self._is_full = False
        self._encipher()

    # -- the handshake ------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Continue the handshake; return whether it is done."""
        connection = self.connection
        if connection.closing is not None:
            return False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._flush()  # the alert for the client
            failure = _describe(error)
            self._fail(Failure(failure.word, f"TLS handshake: {failure.sentence}"))
            return False
        self._flush()
        certificate, peer = self._tls.getpeercert(binary_form=True), connection.peer
        try:
            peer.principal = self._identity.principal_of(certificate)
        except Exception as error:  # a certificate is input: whatever its parsing raises, the client is refused
            self._fail(Failure("principal", f"TLS handshake: the client's certificate has no user name: {error}"))
            return False
        self._is_ready = True
        connection.handshake_done()
        if peer.authentication is None:
            self._logins.succeeded_by_tls(peer, has_certificate=certificate is not None)
        return True

    def _fail(self, failure: Failure) -> None:
        """Close: the handshake has failed."""
        connection = self.connection
        self._has_failed = True
        if connection.closing is None:
            self._logins.failed(connection.peer, TLS, failure.word)
            connection.close(failure.sentence)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _decipher(self) -> None:
        """Pass decrypted bytes to the connection, for as long as it reads."""
        connection, read = self.connection, self._tls.read
        is_dry = False
        try:
            while not (is_dry or self._is_paused or self._is_closing):
                room = connection.get_buffer(-1)
                filled, most = 0, len(room)
                try:
                    while filled < most:
                        count = cast("int", read(most - filled, room[filled:]))
                        if not count:
                            raise ssl.SSLZeroReturnError
                        filled += count
                except ssl.SSLWantReadError:
                    is_dry = True
                if filled:
                    connection.buffer_updated(filled)
        except ssl.SSLZeroReturnError:  # the client closes TLS; bytes that it sent before are not passed on yet
            if filled:
                connection.buffer_updated(filled)
            connection.eof_received()
            self.close()
        except ssl.SSLError as error:
            self._has_failed = True
            connection.close(f"TLS: {_describe(error).sentence}")
        if self._outgoing.pending:
            self._flush()

    def pause_reading(self) -> None:
        """Pass nothing more to the connection, and read nothing more."""
        self._is_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again. Bytes that were read before come first, but in a later step: the connection is in one now."""
        self._is_paused = False
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.resume_reading()
        if not self._is_planned and (self._incoming.pending or self._tls.pending()):
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_planned = False
        if self._is_ready and self._transport is not None:
            self._decipher()

    def is_reading(self) -> bool:
        """Whether it reads."""
        return not self._is_paused and not self._is_closing

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        """Send this after what waits."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send these after what waits. They must not change until they are encrypted."""
        if self._is_closing:
            return
        for data in list_of_data:
            if data:
                view = memoryview(data)
                self._backlog.append(view)
                self._backlog_bytes += len(view)
        self._encipher()
        if self._backlog_bytes > self._high and not self._has_told:
            self._has_told = True
            self.connection.pause_writing()

    def _encipher(self) -> None:
        """Encrypt as much as the socket takes."""
        backlog, write, transport = self._backlog, self._tls.write, self._transport
        if transport is None:
            return
        try:
            while backlog and not self._is_full:
                piece = backlog[0]
                count = write(piece[:ENCIPHER_BYTES])
                self._backlog_bytes -= count
                if count == len(piece):
                    backlog.popleft()
                else:
                    backlog[0] = piece[count:]
                transport.write(self._outgoing.read())
        except ssl.SSLError as error:
            self.connection.close(f"TLS: {_describe(error).sentence}")
            transport.abort()
            return
        if backlog:
            return
        if self._is_closing:
            self._say_goodbye(transport)
        elif self._has_told:
            self._has_told = False
            self.connection.resume_writing()

    def _flush(self) -> None:
        """Send the messages of TLS itself."""
        transport = self._transport
        if not self._outgoing.pending or transport is None or transport.is_closing():
            return
        transport.write(self._outgoing.read())
        if transport.get_write_buffer_size() > MOST_UNSENT_BYTES:
            self.connection.close("TLS: it asks for new keys again and again, and takes no answer")
            self.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the number of waiting bytes from which the connection must write no more; it may again at 0."""
        self._high = high or 0

    def get_write_buffer_size(self) -> int:
        """The bytes that wait, encrypted or not."""
        transport = self._transport
        return self._backlog_bytes + (0 if transport is None else transport.get_write_buffer_size())

    @property
    def ciphertext_bytes(self) -> int:
        """The ciphertext that is kept: read and not decrypted, or produced and not sent."""
        return self._incoming.pending + self._outgoing.pending

    def can_write_eof(self) -> bool:
        """False: TLS closes both directions at the same time."""
        return False

    # -- the end ------------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Whether it ends."""
        return self._is_closing

    def close(self) -> None:
        """End when everything has been sent."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._backlog and self._transport is not None:
            self._say_goodbye(self._transport)

    def _say_goodbye(self, transport: asyncio.Transport) -> None:
        if self._is_ready:
            with contextlib.suppress(ssl.SSLError, ValueError):  # OpenSSL would wait for the client's close_notify
                self._tls.unwrap()
            self._flush()
        transport.close()

    def abort(self) -> None:
        """End now."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the socket's transport; and `sslcontext`, which shows other code that the socket carries ciphertext."""
        if name == "sslcontext":
            return self._tls.context
        if name == "ssl_object":
            return self._tls
        return default if self._transport is None else self._transport.get_extra_info(name, default)


def _describe_plaintext(start: bytes) -> Failure:
    if start[:4] in _HTTP_METHODS:
        return Failure("http", f"this is HTTP ({start!r}), and the listener speaks TLS")
    if start[:1] == b"\0":
        return Failure(
            "plaintext",
            "this is Kafka's protocol without TLS, and the listener speaks TLS (security.protocol of the client?)",
        )
    return Failure("garbage", f"{start!r} is not the beginning of TLS, and the listener speaks TLS")


def _describe(error: ssl.SSLError | ssl.CertificateError) -> Failure:
    reason = getattr(error, "reason", None) or ""
    if reason in _REASONS:
        return _REASONS[reason]
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure("certificate", f"the client's certificate is refused: {error.verify_message}")
    return Failure(reason.lower() or "failed", str(reason or error).replace("_", " ").lower())
