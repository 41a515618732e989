"""The pages of the HTTP port: is the process alive, is the broker ready for clients, and its metrics.

`/` links to all of them (`front.py`). `/livez` is 200 as long as the loop runs, during a recovery too. `/readyz` is 200
when the broker accepts requests. It is 503 while the broker starts (with the progress), while it stops, and when no log
directory takes writes; it has the directories' states as JSON once they are known. `/metrics` is Prometheus' text, 503
while the broker starts. Pages are functions of the broker's services; `server.py` speaks HTTP.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from ottla.address import host_and_port
from ottla.broker.http.front import front_page
from ottla.broker.http.server import Page, Pages
from ottla.broker.runtime.pending import Pending

if TYPE_CHECKING:
    from ottla.broker.chores.log_cleaner import LogCleaner
    from ottla.broker.context import ApiServices
    from ottla.broker.telemetry.exposition import Exposition

JSON = "application/json"

Address = tuple[str, int]
"""Host and port of a bound socket."""


def pages_of(
    services: ApiServices, cleaner: LogCleaner, addresses: Mapping[str, Address], accepts_requests: Callable[[], bool]
) -> Pages:
    """The pages of one broker, whose listeners are bound to `addresses` by their names; `accepts_requests` returns
    whether they are open and the broker does not stop.
    """
    return {
        "/": partial(_front, services, addresses, accepts_requests),
        "/livez": partial(_livez),
        "/readyz": partial(_readyz, services, accepts_requests),
        "/metrics": _Metrics(services, cleaner),
    }


def starting_pages(progress: Callable[[], str]) -> Pages:
    """The pages while another thread opens logs, to which nothing here has access; `progress` returns how far it is."""

    def not_ready() -> Page:
        words = f"starting: {progress()}"
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "starting", "progress": words})

    return {
        "/": lambda: front_page(f"starting: {progress()}", {}),
        "/livez": _livez,
        "/readyz": not_ready,
        "/metrics": not_ready,
    }


def _livez() -> Page:
    return _json(HTTPStatus.OK, {"status": "alive"})


def _readyz(services: ApiServices, accepts_requests: Callable[[], bool]) -> Page:
    directories = [
        {
            "path": str(directory.path),
            "state": directory.state.value,
            "error": None if directory.error is None else str(directory.error),
        }
        for directory in services.log_manager.directories
    ]
    is_ready, status = _status(services, accepts_requests)
    catalog = services.catalog
    offline = sum(partition is None for topic in catalog.topics.values() for partition in topic.partitions)
    return _json(
        HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE,
        {
            "status": status,
            "cluster_id": catalog.cluster_id,
            "node_id": catalog.node_id,
            "topics": len(catalog.topics),
            "offline_partitions": offline,
            "log_directories": directories,
        },
    )


def _status(services: ApiServices, accepts_requests: Callable[[], bool]) -> tuple[bool, str]:
    """Whether the broker is ready for clients, and its status in words."""
    # Below the reserve records are refused; clients that read, commit or delete must still be served.
    takes_writes = any(directory.has_taken_all for directory in services.log_manager.directories)
    if not accepts_requests():
        return False, "not accepting requests"
    if not takes_writes:
        return False, "no log directory takes writes"
    if not any(directory.is_online for directory in services.log_manager.directories):
        return True, "ready, but records are refused: no log directory has its reserve"
    return True, "ready"


def _front(services: ApiServices, addresses: Mapping[str, Address], accepts_requests: Callable[[], bool]) -> Page:
    catalog = services.catalog
    partitions = sum(len(topic.partitions) for topic in catalog.topics.values())
    facts = {
        "node": f"{catalog.node_id} of cluster {catalog.cluster_id}",
        "topics": f"{len(catalog.topics):,} with {partitions:,} partitions",
        "log directories": ", ".join(f"{one.path} ({one.state.value})" for one in services.log_manager.directories),
    }
    listeners = [
        (name, host_and_port(*address), _sent_to(services, name, address[1])) for name, address in addresses.items()
    ]
    return front_page(_status(services, accepts_requests)[1], facts, listeners)


def _sent_to(services: ApiServices, listener: str, bound_port: int) -> str:
    advertised = services.config.advertised(listener)
    if advertised is None:
        return "the address that they connect to"
    return host_and_port(advertised.host, advertised.port or bound_port)


class _Metrics:
    """The metrics page. A worker imports prometheus-client with the first scrape, so that neither a start nor a client
    waits for it. A scrape is made in steps, because 2,000 partitions are 12,000 lines.
    """

    def __init__(self, services: ApiServices, cleaner: LogCleaner) -> None:
        self._services = services
        self._cleaner = cleaner
        self._exposition: Exposition | None = None

    def __call__(self) -> Page | Pending[Page]:
        pending: Pending[Page] = Pending()
        if self._exposition is not None:
            self._step(pending, self._exposition.pieces(), [])
        else:
            self._services.workers.run(_import_exposition, lambda _, error: self._imported(pending, error))
        return pending

    def _imported(self, pending: Pending[Page], error: BaseException | None) -> None:
        if error is not None:
            pending.fail(error)
            return
        from ottla.broker.telemetry.exposition import Exposition

        self._exposition = Exposition(self._services, self._cleaner)
        self._step(pending, self._exposition.pieces(), [])

    def _step(self, pending: Pending[Page], pieces: Iterator[bytes], made: list[bytes]) -> None:
        from ottla.broker.telemetry.exposition import CONTENT_TYPE

        services = self._services
        started_ns = time.perf_counter_ns()
        try:
            piece = next(pieces, None)
        except Exception as error:  # a bug, which the server logs; the client must not wait for ever
            pending.fail(error)
            return
        services.metrics.chore("scrape").step((time.perf_counter_ns() - started_ns) // 1_000, services.clock.wall_ms())
        if piece is None:
            pending.complete(Page(HTTPStatus.OK, CONTENT_TYPE, b"".join(made)))
            return
        made.append(piece)
        services.timers.at(services.clock.monotonic_ms(), lambda: self._step(pending, pieces, made))


def _import_exposition() -> None:
    import ottla.broker.telemetry.exposition  # noqa: F401  (to have it in memory)


def _json(status: HTTPStatus, body: object) -> Page:
    return Page(status, JSON, (json.dumps(body, indent=2) + "\n").encode())
