"""The authentication of one connection: its stages, its deadline, the end of its session (SaslServerAuthenticator).

    HANDSHAKE --mechanism--> EXCHANGE --tokens--> COMPLETE     (--> HANDSHAKE again: re-authentication, KIP-368)
                                      \\--> FAILED: answered after a delay, then closed

The delay of failures is `connection.failed.authentication.delay.ms`.

It knows no frames and no loop: handlers pass it the contents of requests (`broker/api/sasl_handshake.py`,
`sasl_authenticate.py`), and `requests/authenticating.py` the bare tokens of clients older than Kafka 1.0. It sets the
peer's principal, and asks the peer's connection to end or to admit requests.

A peer whose session can expire keeps its Authentication; any other drops it when it is complete, and then costs no more
than a connection without authentication.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.broker.principal import USER, Principal
from ottla.broker.runtime.pending import Pending
from ottla.broker.security.sasl.mechanism import MechanismServer, SaslFailure, Step
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.peer import Peer
    from ottla.broker.runtime.timers import Timer, Timers
    from ottla.broker.security.logins import Logins
    from ottla.storage.files.clock import Clock

LOG = logging.getLogger("ottla.sasl")

LEAST_BETWEEN_SESSIONS_MS = 1_000
"""As in Kafka (`KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS`)."""


class Stage(enum.Enum):
    """The state of an authentication: the step that comes next."""

    HANDSHAKE = enum.auto()
    EXCHANGE = enum.auto()
    COMPLETE = enum.auto()
    FAILED = enum.auto()


class Limits(NamedTuple):
    """The limits of a listener. `max_session_ms`: the longest session by mechanism; 0: no limit."""

    max_receive_bytes: int = 524288
    failure_delay_ms: int = 100
    timeout_ms: int = 30_000
    max_session_ms: Mapping[str, int] = {}


class HandshakeAnswer(NamedTuple):
    """The answer to SaslHandshake."""

    error_code: ErrorCode
    mechanisms: list[str]


class TokenAnswer(NamedTuple):
    """The answer to a token."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0


class Authentication:
    """See the module's text."""

    __slots__ = (
        "_clock",
        "_deadline",
        "_knows_sessions",
        "_limits",
        "_mechanism",
        "_mechanisms",
        "_peer",
        "_principal",
        "_server",
        "_session_began_ms",
        "_timers",
        "expires_ms",
        "logins",
        "stage",
        "takes_bare_tokens",
    )

    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], MechanismServer]],
        limits: Limits,
        peer: Peer,
        timers: Timers,
        clock: Clock,
    ) -> None:
        self._mechanisms = mechanisms
        self._limits = limits
        self._peer = peer
        self._timers = timers
        self._clock = clock
        self._mechanism = ""
        self._server: MechanismServer | None = None
        self._principal: Principal | None = None
        """The principal of the session before."""
        self._deadline: Timer | None = None
        self._session_began_ms: float | None = None
        """When the login of the next session began; None before the first."""
        self._knows_sessions = False
        """Whether the client knows of re-authentication (SaslAuthenticate 1)."""
        self.expires_ms: float | None = None
        """The monotonic time at which the session ends; None: never, or there is no session."""
        self.stage = Stage.HANDSHAKE
        self.logins: Logins | None = None
        """Counts successful and failed logins; None: nothing counts them."""
        self.takes_bare_tokens = False
        """Whether the next frame is a token without a request around it (SaslHandshake 0)."""

    # -- the life of the connection -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the deadline: the client has connected."""
        timeout_ms = self._limits.timeout_ms
        self._plan(
            timeout_ms, lambda: self._give_up(f"not authenticated within ottla.handshake.timeout.ms={timeout_ms}")
        )

    def end(self) -> None:
        """Drop the login: the connection has ended."""
        self._cancel()
        self.stage, self._server = Stage.FAILED, None

    @property
    def is_complete(self) -> bool:
        """Whether the client has a session, which may have expired."""
        return self.stage is Stage.COMPLETE

    @property
    def has_expired(self) -> bool:
        """Whether the client's session has expired: it may begin another one, and nothing else."""
        return self.expires_ms is not None and self._clock.monotonic_ms() >= self.expires_ms

    def begin_again(self) -> bool:
        """Begin the next session of a client that sends SaslHandshake within one; return whether that is allowed: once
        a second at most, and only if sessions expire (Kafka's `maybeBeginServerReauthentication`).
        """
        now_ms = self._clock.monotonic_ms()
        if self.expires_ms is None:
            return False
        if self._session_began_ms is not None and now_ms - self._session_began_ms < LEAST_BETWEEN_SESSIONS_MS:
            return False
        self._session_began_ms = now_ms
        self._principal = self._peer.principal
        self._peer.hot_path = None
        self.stage, self.expires_ms, self.takes_bare_tokens = Stage.HANDSHAKE, None, False
        self.begin()
        return True

    def note_expired(self) -> None:
        """Count a connection that is closed because its client sent a request after the session had expired."""
        if self.logins is not None:
            self.logins.expired(self._peer, self._mechanism)

    # -- what the client sends ----------------------------------------------------------------------------------------

    def handshake(self, mechanism: str, version: int) -> HandshakeAnswer:
        """Set the mechanism that the client names. After an error the caller answers with `refuse`."""
        enabled = list(self._mechanisms)
        if self.stage is not Stage.HANDSHAKE:
            return HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE, [])
        make = self._mechanisms.get(mechanism)
        if make is None:
            return HandshakeAnswer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled)
        if self._principal is not None and mechanism != self._mechanism:
            self._server = _OtherMechanism(mechanism, self._mechanism)
        else:
            self._mechanism, self._server = mechanism, make()
        self.stage = Stage.EXCHANGE
        self.takes_bare_tokens = version == 0
        return HandshakeAnswer(ErrorCode.NONE, enabled)

    def evaluate(self, token: bytes, version: int = 0) -> Pending[TokenAnswer]:
        """The answer to a token of the mechanism: immediately, or when its keys are available; a failure after its
        delay. `version` is that of SaslAuthenticate, and 0 for a bare token.
        """
        self._knows_sessions = self._knows_sessions or version > 0
        answer: Pending[TokenAnswer] = Pending(parks=True)
        server = self._server
        if self.stage is not Stage.EXCHANGE or server is None:
            self._refuse(
                answer,
                TokenAnswer(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received before SaslHandshake"),
                "a token came before the mechanism was named",
            )
            return answer
        try:
            step = server.evaluate(token)
        except SaslFailure as failure:
            self._fail(answer, failure)
            return answer
        if isinstance(step, Pending):
            answer.on_cancel(step.cancel)
            step.then(lambda done: self._evaluated(answer, done))
        else:
            self._take(answer, step)
        return answer

    def refuse(self, reason: str, user: str | None = None) -> Pending[None]:
        """Refuse the login: complete the result after the delay of failures, when the refusal may be sent; then the
        connection ends. `user` is the user whose login has failed, if known.
        """
        refused: Pending[None] = Pending(parks=True)
        self._count_failure(reason, user)
        self.stage, self._server = Stage.FAILED, None

        def after_delay() -> None:
            refused.complete(None)
            self._peer.close(reason)

        self._plan(self._limits.failure_delay_ms, after_delay)
        return refused

    # -- the result of the login --------------------------------------------------------------------------------------

    def _evaluated(self, answer: Pending[TokenAnswer], done: Pending[Step]) -> None:
        if self.stage is not Stage.EXCHANGE:
            return  # the login was given up
        if isinstance(done.error, SaslFailure):
            self._fail(answer, done.error)
        elif done.error is not None:
            LOG.error("bug: a token of %s could not be evaluated", self._mechanism, exc_info=done.error)
            self._fail(answer, SaslFailure("it could not be evaluated"))
        else:
            assert done.response is not None
            self._take(answer, done.response)

    def _take(self, answer: Pending[TokenAnswer], step: Step) -> None:
        """Answer a valid token; the last one completes the authentication."""
        if step.user is None:
            answer.complete(TokenAnswer(auth_bytes=step.token))
            return
        principal, before = Principal(USER, step.user), self._principal
        if before is not None and principal != before:
            changed = f"{before.type}.{before.name}: {principal.type}.{principal.name}"
            text = f"Cannot change principals during re-authentication from {changed}"
            self._fail(answer, SaslFailure("another user during re-authentication", text))
            return
        peer = self._peer
        peer.principal, peer.is_by_token = principal, step.is_token
        self.stage, self._server, self.takes_bare_tokens = Stage.COMPLETE, None, False
        self._cancel()
        lifetime_ms = self._lifetime_ms(step.expires_at_ms)
        if lifetime_ms is not None:
            self.expires_ms = self._clock.monotonic_ms() + lifetime_ms
            self._plan(lifetime_ms, self._expire)
        answer.complete(TokenAnswer(auth_bytes=step.token, session_lifetime_ms=lifetime_ms or 0))
        LOG.debug("%s: authenticated as %s by %s", peer, principal, self._mechanism)
        if self.logins is not None:
            if before is None or self._session_began_ms is None:
                self.logins.succeeded(peer, self._mechanism, knows_reauthentication=self._knows_sessions)
            else:
                elapsed_us = int(1000 * (self._clock.monotonic_ms() - self._session_began_ms))
                self.logins.succeeded_again(peer, self._mechanism, elapsed_us)
        if before is None:
            peer.authenticated(is_watched=lifetime_ms is not None)

    def _lifetime_ms(self, expires_at_ms: float | None) -> int | None:
        """How long the session lasts; None: forever."""
        most_ms = self._limits.max_session_ms.get(self._mechanism, 0) or None
        left_ms = None if expires_at_ms is None else max(0, int(expires_at_ms - self._clock.wall_ms()))
        both = [one for one in (most_ms, left_ms) if one is not None]
        return min(both) if both else None

    def _expire(self) -> None:
        """End the session: drop the templates, so that the next request takes the slow path, which closes."""
        self._deadline = None
        self._peer.hot_path = None

    def _fail(self, answer: Pending[TokenAnswer], failure: SaslFailure) -> None:
        again = "authentication" if self._principal is None else "re-authentication"
        general = (
            f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        refusal = TokenAnswer(
            ErrorCode.SASL_AUTHENTICATION_FAILED, failure.message or general, auth_bytes=failure.auth_bytes
        )
        self._refuse(answer, refusal, f"{again} by {self._mechanism} failed: {failure.detail}", failure.user)

    def _refuse(self, answer: Pending[TokenAnswer], refusal: TokenAnswer, reason: str, user: str | None = None) -> None:
        self.refuse(reason, user).then(lambda _: answer.complete(refusal))

    def _give_up(self, reason: str) -> None:
        self.stage, self._server = Stage.FAILED, None
        self._count_failure(reason)
        self._peer.close(reason)

    def _count_failure(self, reason: str, user: str | None = None) -> None:
        if self.logins is not None:
            self.logins.failed(self._peer, self._mechanism, reason, is_again=self._principal is not None, user=user)

    def _plan(self, delay_ms: float, step: Callable[[], None]) -> None:
        self._cancel()
        self._deadline = self._timers.at(self._clock.monotonic_ms() + delay_ms, step)

    def _cancel(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()


def authentication_of(peer: Peer) -> Authentication | None:
    """The authentication that the client has not completed, or has to repeat later; None if there is none."""
    return cast("Authentication | None", peer.authentication)


class _OtherMechanism:
    """A server that refuses a mechanism other than that of the session before."""

    def __init__(self, mechanism: str, before: str) -> None:
        self._text = (
            f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism"
            f" '{before}'"
        )

    def evaluate(self, token: bytes) -> Step:
        raise SaslFailure(self._text, self._text)
