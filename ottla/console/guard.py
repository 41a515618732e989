"""Which requests are answered: a program of another user, and a page of another site, must see and do nothing.

Everybody on the machine can connect to a loopback address, and so can each page in the user's browser. So:

- **The token.** It is random, in the fragment of the printed URL, and a header of each request for data. A fragment is
  never sent, so it is in no log and no `Referer`. The page keeps it in `localStorage`, which belongs to this host *and
  port*. A cookie would be sent to all ports of the host, which means to the servers of other users and other programs.
  As nothing is sent by itself, no other site can use it (no CSRF).
- **The host** must be an address, `localhost` or the like: not the name of a page that points here (DNS rebinding).
- **The origin**, where a browser names one, must be the console's own.

The files of the page need no token: they are the same for everybody, and contain nothing of the cluster.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from http import HTTPStatus

from ottla.addressed import is_named
from ottla.web_server import BadRequest, Request

TOKEN_HEADER = "x-ottla-token"
_OWN_FETCH_SITES = ("same-origin", "none")
"""`Sec-Fetch-Site` of the page's own requests, and of an address that the user enters."""


class Guard:
    """Refuses requests. `token`: see the module; `names`: of this machine, besides those of `is_named`."""

    def __init__(self, token: str, names: Collection[str] = ()) -> None:
        self._token = token.encode()
        self._names = names

    def check_host(self, request: Request) -> None:
        """Raise BadRequest for a request that names another host."""
        host = request.headers.get("host", "")
        if not host or not is_named(host, self._names):
            line = f"{host[:100]!r} is not this console: use the URL that `ottla console` has printed"
            raise BadRequest(HTTPStatus.MISDIRECTED_REQUEST, line)

    def check_access(self, request: Request) -> None:
        """Raise BadRequest for a request without the token, or of another page."""
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{request.headers.get('host', '')}":
            raise BadRequest(HTTPStatus.FORBIDDEN, "a page of another origin has made this request")
        if request.headers.get("sec-fetch-site", "none") not in _OWN_FETCH_SITES:
            raise BadRequest(HTTPStatus.FORBIDDEN, "a page of another site has made this request")
        given = request.headers.get(TOKEN_HEADER, "").encode("latin-1")
        if not hmac.compare_digest(given, self._token):
            line = "the token is missing or of an earlier start: open the URL that `ottla console` has printed"
            raise BadRequest(HTTPStatus.UNAUTHORIZED, line)
