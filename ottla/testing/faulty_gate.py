"""The gate of an embedded broker: it looks for a fault before it admits a request.

While there is a fault, no request template is learnt, and none that was learnt before is valid: the broker's fast path
has no gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.api import Handler
from ottla.broker.requests.gate import Gate
from ottla.broker.runtime.in_flight_request import CloseConnection
from ottla.broker.runtime.pending import Pending
from ottla.protocol.errors import KafkaError
from ottla.testing.requested_names import groups_of, topics_of

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices, Context
    from ottla.broker.requests.gate import Admission
    from ottla.protocol.message import Request
    from ottla.testing.faults import Fault, Faults


class FaultyGate(Gate):
    """A gate with faults."""

    def __init__(self, services: ApiServices, faults: Faults) -> None:
        super().__init__(services)
        self._all_services = services
        self._faults = faults

    def admit(self, admission: Admission, request: Request, context: Context) -> tuple[Handler, Request]:
        """As in `Gate`. Raises KafkaError or CloseConnection for a fault."""
        handler, request = super().admit(admission, request, context)
        if not self._faults:
            return handler, request
        context.lacks_rights = True  # so that no template is learnt from it
        fault = self._faults.hit(
            context.api_key,
            context.client_id,
            lambda: topics_of(request, self._all_services),
            lambda: groups_of(request),
        )
        if fault is None:
            return handler, request
        if fault.error is not None:
            raise KafkaError(fault.error, f"{fault.error.message} (a fault of the test)")
        if fault.cuts and not fault.is_handled:
            raise CloseConnection(f"a fault of the test: its {admission.name} is cut")
        return with_fault(handler, fault, admission.name), request


def with_fault(handler: Handler, fault: Fault, name: str) -> Handler:
    """A handler that handles the request, and then loses its answer or holds it back."""

    def handle(request: Any, context: Context) -> Any:
        answer: Pending[Any] = Pending()
        try:
            answer = _pending(handler.handle(request, context))
        except CloseConnection:
            raise
        except Exception as error:  # a refusal is an answer, too; the gate logs a bug
            answer.fail(error)
        return _lost(answer, name) if fault.cuts else _late(answer, fault.delay_ms, context)

    return Handler(handle, handler.needs, ())


def _pending(answer: Any) -> Pending[Any]:
    if isinstance(answer, Pending):
        return answer
    known: Pending[Any] = Pending(parks=True)
    known.complete(answer)
    return known


def _lost(answer: Pending[Any], name: str) -> Pending[Any]:
    """An answer that closes the connection when it is known."""
    lost: Pending[Any] = Pending(parks=answer.parks)
    lost.on_cancel(answer.cancel)
    reason = CloseConnection(f"a fault of the test: the answer to its {name} is lost")
    answer.then(lambda _: lost.fail(reason))
    return lost


def _late(answer: Pending[Any], delay_ms: float, context: Context) -> Pending[Any]:
    """The answer after the delay, which counts from when it is known."""
    late: Pending[Any] = Pending(parks=answer.parks)
    late.on_cancel(answer.cancel)
    services = context.services

    def hold_back(known: Pending[Any]) -> None:
        timer = services.timers.at(services.clock.monotonic_ms() + delay_ms, lambda: _copy(known, late))
        late.on_cancel(timer.cancel)

    answer.then(hold_back)
    return late


def _copy(known: Pending[Any], late: Pending[Any]) -> None:
    if known.error is not None:
        late.fail(known.error)
    else:
        late.complete(known.response)
