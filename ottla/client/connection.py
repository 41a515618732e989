"""One TCP connection to a broker: the asyncio driver of `ottla.client_core.exchange`.

`send` writes at once and returns a future, so that many requests are under way together and their order is the order of
the calls. An answer that matches no request, that cannot be decoded, or that does not come in time ends the connection,
and with it every request on it (`ConnectionLost`), because what follows cannot be trusted.

So does an exception that nothing expects, wherever the loop calls: the requests end in `ClientFailed` then.

Where the broker gives a session an end (KIP-368), the connection logs in again before that; requests wait meanwhile.

It is one object and one file: each callback of the loop may end it, with all of its requests and timers.
`connecting.py` opens it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

from ottla.client.awaited import AloneInFlight, Awaited, AwaitedFuture, fail
from ottla.client.errors import (
    AuthenticationFailed,
    ClientFailed,
    ClientTimeout,
    ConnectionLost,
    KafkaError,
    UnsupportedByBroker,
)
from ottla.client.metrics import ConnectionMetrics
from ottla.client.secured import Secured, handshake_of, next_handshake_of
from ottla.client_core.exchange import Exchange, InFlight
from ottla.client_core.frames import FrameReader, SpeaksTls
from ottla.client_core.handshake import HandshakeRefused, LoginRefused, Place
from ottla.client_core.sasl import Login
from ottla.client_core.versions import ANY_VERSION, NoCommonVersion, newest_common
from ottla.hand_over import Posts
from ottla.protocol.api import REGISTRY
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.message import Request, Response

if TYPE_CHECKING:
    from ottla.client.options import ClientOptions
    from ottla.client_core.exchange import RequestTemplate
    from ottla.protocol.types import Buffer

_SESSION_PART_BEFORE_LOGIN = (0.85, 0.95)
"""Between which parts of its life a session is renewed, by chance: Kafka's SaslClientAuthenticator."""
_TIMER_SLACK_S = 0.001
"""How much too early a timer of the loop may be (uvloop's have milliseconds)."""

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)


P = ParamSpec("P")


def _ends_if_it_fails(
    callback: Callable[Concatenate[Connection, P], None],
) -> Callable[Concatenate[Connection, P], None]:
    """Return a callback of the loop that ends its connection with an exception that nothing expects."""

    @functools.wraps(callback)
    def guarded(self: Connection, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            callback(self, *args, **kwargs)
        except Exception as bug:  # whatever it is, requests that wait must get it
            self._end_failed(bug)

    return guarded


class Connection(asyncio.BufferedProtocol):
    """See the module. Made by `connecting.connect`; `is_open` until `close` or the end of the socket."""

    def __init__(
        self,
        address: str,
        options: ClientOptions,
        metrics: ConnectionMetrics | None,
        secured: Secured,
        login: Login | None,
        place: Place | None = None,
    ) -> None:
        self.address = address
        self.is_open = False
        self.is_writable = True
        """Whether the socket takes bytes; a sender that does not wait for answers has to look."""
        self.on_writable: Callable[[], None] | None = None
        """Called once when `is_writable` is true again, or the connection is not open any more."""
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        """Done when the handshake is, or with what ended it."""
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._options = options
        self._secured = secured
        self._is_settling = True
        """Whether a handshake goes on: the first, or a log-in before the session ends."""
        self._has_received = False
        """Whether the broker has sent anything in the first handshake."""
        self._has_answered = False
        self._login_timer: asyncio.TimerHandle | None = None
        self._login_task: asyncio.Task[None] | None = None
        frames = FrameReader(options.receive_message_max_bytes)
        self._posts = Posts.of_this_thread()
        self._whole_head = frames.whole_head
        self.get_buffer = frames.buffer  # type: ignore[method-assign]  # asked by asyncio where the next bytes go
        self._exchange: Exchange[Awaited] = Exchange(
            options.client_id,
            frames,
            handshake_of(login, place),
            handshake_timeout_s=options.socket_connection_setup_timeout_ms / 1000,
        )
        self.take_correlation_id = self._exchange.take_correlation_id
        """Returns the correlation id of a request for `write_now`; a method of the exchange."""
        self._agreed: dict[tuple[type[Request], int], int] = {}
        """What `version_for` has found; another log-in does not change it."""
        self._metrics = metrics or ConnectionMetrics(self._loop.time())
        self._used_at = self._loop.time()
        self._alone: AloneInFlight | None = None
        """The request of `expect` whose answer must be what is received next."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._deadline_at = 0.0
        self._transport: asyncio.Transport | None = None

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answer."""
        return len(self._exchange.in_flight)

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The versions that the broker takes, by API key."""
        return self._exchange.versions

    @property
    def features(self) -> dict[str, int]:
        """The finalized level of each feature, as the broker said when the connection was made."""
        return self._exchange.features

    # Requests ---------------------------------------------------------------------------------------------------

    def version_for(self, request: type[Request], at_most: int = ANY_VERSION) -> int:
        """Return the highest version of an API that both sides know; raises UnsupportedByBroker when there is none."""
        found = self._agreed.get((request, at_most))
        if found is not None:
            return found
        try:
            found = newest_common(self._exchange.versions, request.message_key, at_most)
        except NoCommonVersion as none:
            raise UnsupportedByBroker(
                f"{none.api_name}: the broker at {self.address} speaks versions {none.theirs_in_words}, "
                f"this client {none.oldest}-{none.newest}"
            ) from None
        self._agreed[request, at_most] = found
        return found

    def send(
        self, request: Request, response: type[R], version: int, timeout_ms: int | None = None
    ) -> asyncio.Future[R]:
        """Write a request and return the future of its answer.

        The future ends in ConnectionLost when the connection does, in ClientTimeout when no answer comes within
        `timeout_ms` (None: `request_timeout_ms`), which also ends the connection. Cancelling it lets the answer come
        and drops it. Raises ConnectionLost at once when the connection is not open.
        """
        limit_ms = self._options.request_timeout_ms if timeout_ms is None else timeout_ms
        answer: asyncio.Future[R] = self._loop.create_future()
        self.send_for(AwaitedFuture(response, answer, limit_ms), request, version)
        return answer

    def send_for(self, awaited: Awaited, request: Request, version: int) -> None:
        """Write a request whose answer, or end without one as in `send`, `awaited` takes at once.

        Raises ConnectionLost when the connection is not open.
        """
        self._check_open()
        now = self._loop.time()
        sent = self._exchange.send(request, version, now, now + awaited.limit_ms / 1000, awaited)
        self._write_outgoing()
        self._watch_deadline(sent.deadline)

    def send_template(self, request: InFlight[Awaited], template: RequestTemplate, varying: Buffer) -> None:
        """As `send_for`, the request of a template with what varies in it; complete but for its correlation id."""
        if not self.is_open:
            self._check_open()
        buffers = self._exchange.send_template(request, template, varying)
        if len(buffers) == 1 and self._transport is not None:  # as `_write`, for what nearly every request is
            data = buffers[0]
            self._transport.write(data)
            self._note_sent(len(data), request.sent_at)
        elif buffers:  # else the request waits for the end of a log-in
            self._write(buffers, request.sent_at)
        if self._deadline_timer is None or request.deadline < self._deadline_at:
            self._watch_deadline(request.deadline)

    def is_clear(self) -> bool:
        """Whether a request would leave immediately: every request is answered, so nothing waits in the transport."""
        return self.is_open and self.is_writable and not self._exchange.in_flight

    def write_now(self, buffers: list[Buffer], now: float) -> None:
        """Write a framed request while the connection `is_clear`; pass it to `expect` in the same step.

        The socket gets it at once, so that the broker works while this step continues.
        """
        if len(buffers) == 1 and self._transport is not None:  # as `_write`, for what nearly every request is
            self._transport.write(buffers[0])
            self._note_sent(len(buffers[0]), now)
        else:
            self._write(buffers, now)

    def expect(self, request: AloneInFlight) -> None:
        """Wait for the answer to a request of `write_now`."""
        self._exchange.in_flight[request.correlation_id] = self._alone = request
        request.foresee()
        if self._deadline_timer is None or request.deadline < self._deadline_at:
            self._watch_deadline(request.deadline)

    def send_only(self, request: Request, version: int) -> None:
        """Write a request that has no answer (Produce with acks=0); raises ConnectionLost when not open."""
        self._check_open()
        self._exchange.send_only(request, version)
        self._write_outgoing()

    def _check_open(self) -> None:
        if not self.is_open:
            raise ConnectionLost(f"not connected to {self.address}")

    def _write_outgoing(self) -> None:
        """Write the request that the exchange has to send."""
        buffers = self._exchange.bytes_to_send()
        if buffers:  # else the request waits for the end of a log-in
            self._write(buffers, self._loop.time())

    def _write(self, buffers: list[Buffer], now: float) -> None:
        transport = self._transport
        assert transport is not None
        if transport.is_closing():
            return  # it is lost, and `connection_lost` comes: `writelines` of asyncio would fail (CPython #136234)
        transport.writelines(buffers)
        self._note_sent(sum(map(len, buffers)), now)

    def _note_sent(self, size_bytes: int, now: float) -> None:
        self._used_at = now
        self._metrics.sent_bytes.add(size_bytes, now)

    def _watch_deadline(self, deadline: float) -> None:
        """Have the timer go off at the earliest deadline; one timer serves all requests."""
        if self._deadline_timer is not None:
            if self._deadline_at <= deadline:
                return
            self._deadline_timer.cancel()
        self._deadline_at = deadline
        self._deadline_timer = self._loop.call_at(deadline, self._on_deadline)

    @_ends_if_it_fails
    def _on_deadline(self) -> None:
        self._deadline_timer = None
        overdue = self._exchange.overdue(self._loop.time() + _TIMER_SLACK_S)
        if overdue is not None:
            self._end_overdue(overdue)
        elif (deadline := self._exchange.next_deadline()) is not None:
            self._watch_deadline(deadline)

    def _end_overdue(self, overdue: InFlight[Awaited]) -> None:
        name = REGISTRY[overdue.api_key].name
        awaited = overdue.context
        limit_ms = self._options.socket_connection_setup_timeout_ms if awaited is None else awaited.limit_ms
        late = ClientTimeout(f"{self.address} did not answer {name} within {limit_ms} ms")
        if awaited is None:
            fail(self.ready, late)
        else:
            self._exchange.give_up(overdue)
            awaited.fail(late)
        self.close(f"{name} was not answered within {limit_ms} ms")

    # The life of the socket -------------------------------------------------------------------------------------

    @_ends_if_it_fails
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self._metrics.connections.add(1, self._loop.time())
        self._size_socket_buffers(transport)
        self._watch_idleness()
        self._exchange.begin(self._loop.time())
        self._continue_handshake()

    def _size_socket_buffers(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("socket")
        sizes = (
            (socket.SO_SNDBUF, self._options.send_buffer_bytes),
            (socket.SO_RCVBUF, self._options.receive_buffer_bytes),
        )
        for which, size_bytes in sizes:
            if size_bytes >= 0 and peer is not None:
                peer.setsockopt(socket.SOL_SOCKET, which, size_bytes)

    @_ends_if_it_fails
    def _watch_idleness(self) -> None:
        """Close the connection when no request used it for `connections_max_idle_ms`; look again if one did."""
        limit_s = self._options.connections_max_idle_ms / 1000
        if limit_s <= 0 or not self.is_open:
            return
        now = self._loop.time()
        used_at = now if self._exchange.in_flight else self._used_at
        if now - used_at >= limit_s:
            self.close("no request used the connection for connections_max_idle_ms")
            return
        self._idle_timer = self._loop.call_at(used_at + limit_s, self._watch_idleness)

    def pause_writing(self) -> None:
        """Called by asyncio: the broker reads more slowly than we write."""
        self.is_writable = False

    @_ends_if_it_fails
    def resume_writing(self) -> None:
        """Called by asyncio."""
        self.is_writable = True
        self._call_writer()

    def _call_writer(self) -> None:
        callback, self.on_writable = self.on_writable, None
        if callback is not None:
            callback()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        try:
            problem = final_problem(exc)
            if problem:
                fail(self.ready, AuthenticationFailed(f"{self.address}: {problem}"))
            reason = str(exc) if exc and not isinstance(exc, ConnectionResetError) else self._why_closed()
            self.close(problem or reason)
        except Exception as bug:  # whatever it is, requests that wait must get it
            self._end_failed(bug)
        finally:
            if not self.closed.done():
                self.closed.set_result(None)

    def _why_closed(self) -> str:
        """The reason of a close, with what a listener may want that ended a connection before it served."""
        closed = "the broker closed the connection"
        if self._has_answered:
            return closed
        if self._secured.has_sasl:
            if self._secured.has_tls or self._has_received:
                return closed  # the login failed, or the broker went away
            wanted = "TLS"
        elif self._secured.has_tls:
            wanted = "SASL, or a client's certificate (ssl.keystore.location)"
        else:
            wanted = "SASL" if self._exchange.is_ready else "TLS"
        hint = f"does its listener want {wanted}? security.protocol is {self._options.security_protocol}"
        if not self._secured.has_tls:  # a limit of connections closes without a word
            hint += "; or are there too many connections (its log names the limit)?"
        return f"{closed} before it answered; {hint}"

    def finish(self) -> None:
        """Take no more requests and let those that are written leave: the broker ends the connection behind them.

        `closed` is done when it has; `close` ends a connection that takes too long.
        """
        if self.is_open and self._transport is not None:
            self._end_use()
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:  # TLS: closing it sends what was written before
                self._transport.close()

    def close(self, reason: str = "the client closed the connection") -> None:
        """End the connection now; every request in flight ends in ConnectionLost with the reason."""
        self._end(ConnectionLost(f"{self.address}: {reason}"))

    def _end(self, error: KafkaError) -> None:
        if self.is_open:
            self._end_use()
        if self._transport is not None:
            self._transport.abort()
        self._call_writer()
        self._fail_requests(error)

    def _fail_requests(self, error: KafkaError) -> None:
        for request in self._exchange.end():
            if request.context is not None:
                request.context.fail(error)
        fail(self.ready, error)

    def _end_failed(self, bug: Exception) -> None:
        """End the connection because of an exception that nothing expects."""
        logger.error("%s: the client failed", self.address, exc_info=bug)
        failure = ClientFailed(bug)
        try:
            self._end(failure)
        finally:  # whatever else fails: nothing waits for ever
            self._fail_requests(failure)

    def _end_use(self) -> None:
        self.is_open = False
        self._metrics.connections_closed.add(1, self._loop.time())
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for timer in (self._deadline_timer, self._login_timer):
            if timer is not None:
                timer.cancel()
        if self._login_task is not None:
            self._login_task.cancel()

    # Answers ----------------------------------------------------------------------------------------------------

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio: so many bytes came."""
        if not self.is_open:
            return
        now = self._loop.time()
        alone = self._alone
        try:
            if alone is not None:
                self._alone = None
                if self._take_alone(alone, nbytes, now):
                    return
            for answer in self._exchange.receive(nbytes, now):
                request, data, _ = answer
                awaited = request.context
                if awaited is not None:
                    self._has_answered = True
                    try:
                        awaited.take(answer)
                    except MalformedMessage as malformed:
                        reason = f"{self.address}: the broker's answer makes no sense: {malformed}"
                        awaited.fail(ConnectionLost(reason))
                        raise
                    except Exception as bug:  # the caller that awaits this answer must get it
                        awaited.fail(ClientFailed(bug))
                        raise
                self._metrics.answers.add(now, SIZE_BYTES + len(data), (now - request.sent_at) * 1000)
            if self._is_settling:
                self._has_received = True
                self._continue_handshake()
        except SpeaksTls as tls:
            fail(self.ready, AuthenticationFailed(f"{self.address}: {tls} (it is {self._options.security_protocol})"))
            self.close(str(tls))
        except MalformedMessage as malformed:
            self.close(f"the broker's answer makes no sense: {malformed}")
        except LoginRefused as refused:
            self._end_refused(
                AuthenticationFailed(f"{self.address}: {refused.step} failed: {refused.reason}", refused.code)
            )
        except HandshakeRefused as refused:
            self._end_refused(KafkaError(refused.code, f"{self.address} refused {refused.step}: {refused.reason}"))
        except Exception as bug:  # whatever it is, requests that wait must get it
            self._end_failed(bug)
        except BaseException:  # an interrupt: a part of what was received may be lost
            self.close("the program was interrupted while it read an answer")
            raise

    def _take_alone(self, alone: AloneInFlight, nbytes: int, now: float) -> bool:
        """Process received bytes if they are exactly the usual answer to the only request; return whether they are."""
        posts = self._posts
        if posts is None:
            if not alone.take_received(self._whole_head, nbytes):
                return False
            self._exchange.in_flight.pop(alone.correlation_id, None)  # the connection may have ended meanwhile
        else:
            posts.will_run_ahead = True
            try:
                if not alone.take_received(self._whole_head, nbytes):
                    return False
                self._exchange.in_flight.pop(alone.correlation_id, None)
            finally:
                posts.run_ahead()  # perhaps the next record of the thread that waited for this answer
        self._metrics.answers.add(now, nbytes, (now - alone.sent_at) * 1000)
        return True

    def _end_refused(self, refusal: KafkaError) -> None:
        if self.ready.done():
            logger.warning("%s", refusal.message)
        fail(self.ready, refusal)
        self.close(refusal.message.removeprefix(f"{self.address}: "))

    def _continue_handshake(self) -> None:
        """After bytes that may have ended a step of a handshake: send the next one, or let requests through."""
        if self._exchange.has_bytes_to_send:
            self._write_outgoing()
            self._watch_deadline(self._exchange.next_deadline() or self._used_at)
        if self._exchange.is_settling:
            return
        self._is_settling = False
        lifetime_s = self._exchange.session_lifetime_ms / 1000
        if lifetime_s > 0:
            due_s = lifetime_s * random.uniform(*_SESSION_PART_BEFORE_LOGIN)
            self._login_timer = self._loop.call_later(due_s, self._log_in_again)
        if not self.ready.done():
            self.ready.set_result(None)

    @_ends_if_it_fails
    def _log_in_again(self) -> None:
        """Before the session ends: get what the login needs, then the handshake, before which nothing has to wait."""
        self._login_task = self._loop.create_task(self._prolong_session(), name=f"ottla-login-{self.address}")

    async def _prolong_session(self) -> None:
        try:
            login = await self._secured.login()
            if self.is_open and login is not None:
                self._is_settling = True
                self._exchange.begin_again(next_handshake_of(self._exchange.settled, login), self._loop.time())
                self._continue_handshake()
        except KafkaError as failed:
            # The broker ends the connection at the session's end; the next one says what is wrong.
            logger.warning("%s: no login for another session: %s", self.address, failed.message)
        except Exception as bug:  # whatever it is, requests that wait must get it
            self._end_failed(bug)


def final_problem(error: BaseException | None) -> str:
    """Why TLS cannot be had, where every attempt ends so; an empty text for any other failure."""
    if not isinstance(error, ssl.SSLError):
        return ""
    from ottla.client_tls import final_problem

    return final_problem(error)
