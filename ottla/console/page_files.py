"""The files of the page, from the package."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Final

from ottla.web_server import BadRequest, Request, Response

TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@cache
def contents() -> dict[str, bytes]:
    """All files, by name."""
    folder = files("ottla.console") / "page"
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.name.rpartition(".")[2] in TYPES}


def page_file(request: Request) -> Response:
    """The file of a path. Raises BadRequest if there is none."""
    if request.method not in ("GET", "HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "GET only")
    name = "/".join(request.path) or "index.html"
    body = contents().get(name)
    if body is None:
        raise BadRequest(HTTPStatus.NOT_FOUND, "there is no such page")
    return Response(HTTPStatus.OK, TYPES[name.rpartition(".")[2]], b"" if request.method == "HEAD" else body)
