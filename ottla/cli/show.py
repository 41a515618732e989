"""Bytes, times and sizes for the terminal and for JSON."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta

import click

from ottla.shown import counted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*")


def show_bytes(data: bytes | None, *, most: int = 200) -> str:
    """`null`, `"text"` with escapes, or `0x…` if it is not UTF-8; after `most` bytes only the length is shown."""
    if data is None:
        return "null"
    cut = data[:most]
    rest = f"… ({counted(len(data), 'byte')})" if len(data) > most else ""
    try:
        text = cut.decode()
    except UnicodeDecodeError as error:
        if not rest or error.start < most - 4:  # the cut itself may have split a character
            return f"0x{cut.hex()}{rest}"
        text = cut[: error.start].decode()
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if not _PLAIN.fullmatch(escaped):
        escaped = "".join(one if _PLAIN.fullmatch(one) else _escape(one) for one in escaped)
    return f'"{escaped}"{rest}'


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def one_line(text: str) -> str:
    """A name that a client has chosen, with escapes for characters that control a terminal or end a line."""
    return text if _PLAIN.fullmatch(text) else "".join(one if _PLAIN.fullmatch(one) else _escape(one) for one in text)


def printable(data: bytes) -> str:
    """The text, with escapes for characters that control a terminal (tabs and line ends stay)."""
    text = data.decode("utf-8", "backslashreplace")
    if _PLAIN.fullmatch(text):
        return text
    return "".join(one if one in "\t\n" or _PLAIN.fullmatch(one) else _escape(one) for one in text)


def json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """A JSON string for UTF-8, else `{"base64": "…"}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def show_time(timestamp_ms: int) -> str:
    """`2023-11-14 22:13:20.000Z`; `none` for -1, the plain number if it is outside of the calendar."""
    if timestamp_ms == -1:
        return "none"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def show_hex(data: bytes) -> str:
    """`00 00 01 f1`."""
    return data.hex(" ")


def parse_time(text: str, option: str = "--timestamp") -> int:
    """Milliseconds since 1970, of that number or of a time in ISO 8601 (UTC unless it names a zone).

    Raises click.BadParameter, which names `option`.
    """
    text = text.strip()
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither milliseconds since 1970 nor a time such as 2023-11-14T22:13:20",
            param_hint=option,
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
