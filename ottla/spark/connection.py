"""One blocking connection to one broker: the driver of `ottla.client_core.exchange` over a socket, every wait bounded.

`send` and `receive` are separate, so that a request can be in flight while the last response is decoded. Responses come
in the order of the requests; one with another correlation id, or larger than MAX_RESPONSE_BYTES, ends the connection.
A response is read, without a copy, into its own numpy buffer followed by PADDING_BYTES (see ottla.arrow.varints).
numpy does not touch that memory: an announced size costs address space only, and memory as bytes arrive.

With TLS the same socket is wrapped. A session whose lifetime the broker has announced (KIP-368) is renewed before it
ends; responses that arrive meanwhile are kept for `receive`.

After any OSError (TimeoutError, refused, reset), and BrokerUnavailable when the peer closes, the connection is closed.
After AuthenticationFailed another connection would fail in the same way."""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections import deque
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ottla.arrow.varints import PADDING_BYTES
from ottla.client_core.exchange import Answer, Exchange
from ottla.client_core.frames import FrameReader, SpeaksTls
from ottla.client_core.handshake import HandshakeRefused, LoginRefused, authenticate_again, open_session
from ottla.client_core.security import SecurityProblem
from ottla.client_core.versions import ANY_VERSION, OLDEST_USED, NoCommonVersion, newest_common
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.message import Request, Response
from ottla.spark.errors import AuthenticationFailed, BrokerUnavailable, ProtocolFailure
from ottla.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from ottla.client_core.sasl import Login
    from ottla.protocol.types import Buffer
    from ottla.spark.client_options import ClientSettings
    from ottla.spark.option_values import Address

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
"""Far more than a Fetch requests, since one batch is returned whole, whatever its size."""

SOFTWARE_NAME = "ottla-spark"
SESSION_PART_BEFORE_LOGIN = 0.85
"""The part of its lifetime after which a session is renewed: the smallest that Kafka's client chooses."""
_NONCE_BYTES = 24

OLDEST_METADATA = 4
"""An older Metadata request cannot forbid that it creates the topic."""
_OLDEST_USED = {**OLDEST_USED, ApiKey.METADATA: OLDEST_METADATA}

R = TypeVar("R", bound=Response)


class Connection:
    """The constructor connects and logs in. It raises OSError or BrokerUnavailable without a broker, ProtocolFailure if
    the peer is no broker, AuthenticationFailed when the two do not accept each other.
    """

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self._address = address
        self._settings = settings
        self._timeout_s = settings.request_timeout_ms / 1000
        # Only sizes are read before their frames, and a frame's buffer is allocated as a whole: no byte is copied.
        frames = FrameReader(
            MAX_RESPONSE_BYTES, allocate=_padded, head_bytes=SIZE_BYTES, first_body_bytes=MAX_RESPONSE_BYTES
        )
        self._exchange: Exchange[bool] = Exchange(
            settings.client_id,
            frames,
            open_session(SOFTWARE_NAME, __version__, self._login(), _nonce()),
            handshake_timeout_s=self._timeout_s,
            in_order=True,
        )
        self._login_at: float | None = None
        """When to renew the session; None: never."""
        self._early: deque[Answer[bool]] = deque()
        """Responses that arrived while the session was renewed."""
        self._has_answered = False
        self._has_received = False
        """Whether the broker has sent a byte; a TLS listener may close the connection without one."""
        self._socket = self._connected()
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.receive_buffer_bytes > 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
            self._exchange.begin(time.monotonic())
            self._settle()
        except ssl.SSLError as failed:  # TLS 1.3 refuses a client's certificate after the handshake
            self._socket.close()
            raise self._tls_problem(failed) from None
        except BaseException:
            self._socket.close()
            raise

    def _connected(self) -> socket.socket:
        address, settings = self._address, self._settings
        # Before connecting: unusable files would fail in the same way with every other broker.
        context = self._tls_context()
        plain = self._plain_socket()
        if context is None:
            return plain
        try:
            return context.wrap_socket(plain, server_hostname=address.host)
        except (ssl.SSLError, ConnectionResetError) as failed:
            plain.close()
            raise self._tls_problem(failed) from None
        except TimeoutError:
            plain.close()
            awaited = f"did not finish a TLS handshake within {settings.connect_timeout_ms} ms"
            raise BrokerUnavailable(f"{address} {awaited} (kafka.security.protocol)") from None
        except BaseException:
            plain.close()
            raise

    def _plain_socket(self) -> socket.socket:
        address, limit_ms = self._address, self._settings.connect_timeout_ms
        try:
            return socket.create_connection((address.host, address.port), timeout=limit_ms / 1000)
        except TimeoutError:
            raise BrokerUnavailable(f"{address} did not accept a connection within {limit_ms} ms") from None
        except OSError as failed:
            raise BrokerUnavailable(f"cannot reach {address}: {failed.strerror or failed}") from None
        except ValueError as failed:  # also a broker may advertise what is no name of a host
            raise BrokerUnavailable(f"{address} is no address: {failed}") from None

    def _tls_context(self) -> ssl.SSLContext | None:
        tls = self._settings.security.tls
        if tls is None:
            return None
        from ottla.client_tls import context_of

        try:
            return context_of(tls)
        except SecurityProblem as wrong:
            raise AuthenticationFailed(f"kafka.{wrong}") from None

    def _tls_problem(self, failed: OSError) -> Exception:
        from ottla.client_tls import final_problem

        problem = final_problem(failed)
        if problem:
            return AuthenticationFailed(f"{self._address}: {problem}")
        reason = "it ended the connection in the TLS handshake; has its listener TLS (kafka.security.protocol)?"
        return BrokerUnavailable(f"{self._address}: {reason}")

    # Logging in -------------------------------------------------------------------------------------------------

    def _login(self) -> Login | None:
        """Return the user's login, with a token fetched now if there is one to fetch."""
        security = self._settings.security
        if security.token_source is None:
            return security.login
        from ottla.client_tokens import NoToken, TokenRefused, fetch_token

        try:
            return security.with_token(fetch_token(security.token_source, self._timeout_s))
        except TokenRefused as refused:
            raise AuthenticationFailed(f"kafka.sasl.oauthbearer.token: {refused}") from None
        except NoToken as none:
            raise BrokerUnavailable(f"kafka.sasl.oauthbearer.token: {none}") from None
        except SecurityProblem as wrong:
            raise AuthenticationFailed(f"kafka.{wrong}") from None

    def _settle(self) -> None:
        """Finish the handshake that has begun."""
        while self._exchange.is_settling:
            self._flush()
            answer = self._read_answer()
            if answer is not None and answer.request.context is not None:
                self._early.append(answer)
        self._flush()
        lifetime_s = self._exchange.session_lifetime_ms / 1000
        self._login_at = time.monotonic() + SESSION_PART_BEFORE_LOGIN * lifetime_s if lifetime_s else None

    def _renew_session(self) -> None:
        login = self._login()
        assert login is not None  # a session without a login has no end
        self._exchange.begin_again(authenticate_again(self._exchange.settled, login, _nonce()), time.monotonic())
        self._settle()

    def close(self) -> None:
        """Close the socket; responses in flight are lost."""
        self._socket.close()

    def version(self, api_key: ApiKey, at_most: int = ANY_VERSION) -> int:
        """Return the newest version that both sides support, not above `at_most`.

        Raises ProtocolFailure when there is none.
        """
        try:
            return newest_common(self._exchange.versions, api_key, at_most, _OLDEST_USED)
        except NoCommonVersion as none:
            raise ProtocolFailure(
                f"{self._address} does not speak {none.api_name} {none.oldest} to {none.newest}; "
                "this source needs Kafka 0.11 or later"
            ) from None

    @property
    def features(self) -> Mapping[str, int]:
        """The levels of the cluster's features, such as `transaction.version`."""
        return self._exchange.features

    def call(
        self, request: Request | Callable[[int], Request], response: type[R], at_most: int = ANY_VERSION
    ) -> tuple[R, int]:
        """Send a request, or the one that a function makes for the version; return the response and the version."""
        version = self.version(ApiKey(response.message_key), at_most)
        self.send(request(version) if callable(request) else request, version)
        return self.parse(self.receive(), response), version

    def send(self, request: Request, version: int | None = None, wait_ms: int = 0) -> None:
        """Send a request at `version` (the newest if None); `wait_ms` is how long the broker may wait deliberately."""
        if version is None:
            version = self.version(ApiKey(type(request).message_key))
        now = time.monotonic()
        if self._login_at is not None and now >= self._login_at:
            self._renew_session()
            now = time.monotonic()
        self._exchange.send(request, version, now, now + self._timeout_s + wait_ms / 1000, True)
        self._flush()

    def receive(self) -> Answer[bool]:
        """Wait for the response to the oldest request in flight."""
        if self._early:
            return self._early.popleft()
        while (answer := self._read_answer()) is None:
            pass
        return answer

    def parse(self, answer: Answer[bool], response: type[R]) -> R:
        """Decode a response; its records are views of the received buffer."""
        try:
            return answer.decode(response)
        except MalformedMessage as broken:
            raise self._no_broker(broken) from None

    def _flush(self) -> None:
        if self._exchange.has_bytes_to_send:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(b"".join(self._exchange.bytes_to_send()))

    def _read_answer(self) -> Answer[bool] | None:
        """Read once, and return the response that is complete then, if there is one."""
        late = f"no answer within {self._settings.request_timeout_ms} ms"
        left = (self._exchange.next_deadline() or 0.0) - time.monotonic()
        if left <= 0:
            raise TimeoutError(late)
        self._socket.settimeout(left)
        try:
            count = self._socket.recv_into(self._exchange.buffer())
        except TimeoutError:  # the socket's own says "timed out", as when there is no connection
            raise TimeoutError(late) from None
        except ConnectionResetError:
            count = 0
        if not count:
            raise BrokerUnavailable(f"{self._address} closed the connection{self._hint()}")
        self._has_received = True
        try:
            # At most one: no byte of the next frame is read before this one is complete.
            answers = list(self._exchange.receive(count, time.monotonic()))
        except SpeaksTls:
            protocol = self._settings.security.protocol
            reason = f"the listener speaks TLS, and kafka.security.protocol is {protocol}"
            raise AuthenticationFailed(f"{self._address}: {reason}") from None
        except MalformedMessage as broken:
            raise self._no_broker(broken) from None
        except LoginRefused as refused:
            raise AuthenticationFailed(f"{self._address}: {refused.step} failed: {refused.reason}") from None
        except HandshakeRefused as refused:
            raise ProtocolFailure(f"{self._address} refused {refused.step}: {refused.code.name}") from None
        self._has_answered = self._has_answered or (bool(answers) and answers[0].request.context is not None)
        return answers[0] if answers else None

    def _hint(self) -> str:
        """Return the probable reason why a connection ended before it served, or nothing."""
        security = self._settings.security
        if self._has_answered:
            return ""
        if security.login is not None and (security.tls is not None or self._has_received):
            return ""  # the login has failed, or the broker stopped
        wanted = "SASL" if self._exchange.is_ready or security.tls is not None else "TLS"
        return f" before it answered; does its listener want {wanted}? kafka.security.protocol is {security.protocol}"

    def _no_broker(self, broken: MalformedMessage) -> ProtocolFailure:
        return ProtocolFailure(f"{self._address} does not answer as a Kafka broker: {broken}")


def _nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def _padded(size_bytes: int) -> Buffer:
    return np.empty(size_bytes + PADDING_BYTES, np.uint8).data


def buffer_of(answer: Answer[bool]) -> npt.NDArray[np.uint8]:
    """Return the buffer of a response, in which padding follows the response."""
    exporter: npt.NDArray[np.uint8] = memoryview(answer.data).obj  # type: ignore[assignment]  # `_padded` made it
    return exporter
