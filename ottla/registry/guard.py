"""Which requests are answered: a page in a browser on this machine must not register or delete schemas.

There is no login, as for the broker: what reaches the port may do everything. But every page that somebody opens can
send requests to a loopback address. So:

- **The host** of a request must be an address, `localhost` or the like (`ottla.addressed`), if the port is bound to
  loopback addresses only: not the name of a page that points here (DNS rebinding).
- **The origin**, which a browser names in requests of pages that change something, must be the registry's own.
- **The type** of a body must be JSON: a page can send only other types without asking first (CORS).
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from ottla.addressed import is_named
from ottla.web_server import BadRequest, Request

BODY_TYPES: Final = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
    "application/octet-stream",
)
"""What Confluent's registry accepts."""


def check_sender(request: Request, names: Sequence[str] | None) -> None:
    """Raise BadRequest for a request of another site's page. `names`: those of `is_named`; None accepts any host."""
    host = request.headers.get("host", "")
    if names is not None and not is_named(host, names):
        line = f"{host[:100]!r} is not this registry: use its address or localhost"
        raise BadRequest(HTTPStatus.MISDIRECTED_REQUEST, line)
    origin = request.headers.get("origin")
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        raise BadRequest(HTTPStatus.FORBIDDEN, "a page of another origin has made this request")


def check_body_type(request: Request) -> None:
    """Raise BadRequest for a body that is not JSON by its type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in BODY_TYPES:
        line = f"HTTP 415 Unsupported Media Type: send Content-Type: {BODY_TYPES[0]}, not {kind[:100] or 'none'}"
        raise BadRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, line)
