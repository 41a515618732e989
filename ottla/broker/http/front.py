"""The page at `/`, for people: which broker this is, and links to everything else on this port.

Plain HTML of a fixed size, whatever the broker holds: one row for each listener, counts of the rest. It loads nothing
and runs nothing (its Content-Security-Policy forbids both), and all text from outside of this file is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from http import HTTPStatus

from ottla.broker.http.server import Page
from ottla.version import __version__

HTML = "text/html; charset=utf-8"

LINKS = {
    "/readyz": "is the broker ready for clients? 200 if so, else 503 with the reason; the state of each log directory",
    "/livez": "is the process alive? 200, during a recovery too",
    "/metrics": "figures, for Prometheus",
}
COMMANDS = {
    "ottla log roll TOPIC-N": "begin a new segment",
    "ottla log retain [TOPIC]": "delete now what retention would delete later",
    "ottla log clean TOPIC": "compact now what the cleaner would compact later",
    "ottla log explain TOPIC-N --retention --compaction": "why each segment is still here",
    "ottla log trust-clock": "the wall clock is right, although it has jumped",
}
"""The purposes of this port's operations, by the command that requests them: by POST, from this machine only."""

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
    "h1{font-size:1.6em;margin-bottom:0}h2{font-size:1.1em;margin-bottom:.3em}"
    "table{border-collapse:collapse}td,th{text-align:left;vertical-align:top;padding:.15em 1.2em .15em 0}"
    "code{font-size:.95em;white-space:nowrap}:root{color-scheme:light dark}"
)


def front_page(status: str, facts: Mapping[str, str], listeners: Sequence[tuple[str, str, str]] = ()) -> Page:
    """The page; `listeners` are names, bound addresses, and where clients are sent."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>Ottla: {escape(status)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Ottla {escape(__version__)}</h1>",
        f"<p>A Kafka broker: <strong>{escape(status)}</strong></p>",
        _table(facts.items()),
    ]
    if listeners:
        parts += ["<h2>Listeners</h2>", _table(listeners, ("name", "bound to", "clients are sent to"))]
    parts += [
        "<h2>On this port</h2>",
        _rows((f'<a href="{path}">{path}</a>', escape(words)) for path, words in LINKS.items()),
        "<h2>Commands that ask this port, from this machine only</h2>",
        _rows((f"<code>{escape(command)}</code>", escape(words)) for command, words in COMMANDS.items()),
        "</body></html>\n",
    ]
    return Page(HTTPStatus.OK, HTML, "\n".join(parts).encode())


def _table(rows: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> str:
    return _rows(([escape(cell) for cell in row] for row in rows), heads)


def _rows(rows: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """A table of cells that are already HTML."""
    lines = [f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"] if heads else []
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
    return "\n".join(["<table>", *lines, "</table>"])
