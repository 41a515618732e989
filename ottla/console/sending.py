"""Writing a record to a topic that exists.

    {"key": {"text": "anna"}, "value": {"base64": "3q0="}, "headers": [["source", {"text": "console"}]], "partition": 2}

A key, a value or a header is null, or has a text or bytes in base64; `partition` null lets the partitioner choose.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from http import HTTPStatus
from typing import Any

from ottla.client import KafkaError
from ottla.console.clients import Clients
from ottla.console.queries import refuse
from ottla.web_server import BadRequest

MOST_HEADERS = 100
DELIVERY_TIMEOUT_S = 10.0


async def send_record(clients: Clients, topic: str, body: bytes) -> dict[str, Any]:
    """Write the record of a request and return its place. Raises BadRequest, KafkaError."""
    given = _parse(body)
    key, value = (_bytes_of(name, given.get(name)) for name in ("key", "value"))
    headers = _headers(given.get("headers", []))
    partition = given.get("partition")
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
        raise refuse("partition must be a number or null")
    await (await clients.admin()).describe_topics([topic])  # otherwise a producer waits for it, or has it created
    producer = await clients.producer()
    try:
        async with asyncio.timeout(DELIVERY_TIMEOUT_S):
            placed = await producer.send_and_wait(topic, value, key=key, headers=headers, partition=partition)
    except ValueError as error:  # the topic does not have the partition
        raise refuse(str(error)) from None
    except TimeoutError:
        await clients.drop_producer()
        line = f"no answer within {DELIVERY_TIMEOUT_S:g} s: look whether the record was written"
        raise BadRequest(HTTPStatus.GATEWAY_TIMEOUT, line) from None
    except KafkaError:
        await clients.drop_producer()
        raise
    return {"partition": placed.partition, "offset": placed.offset, "time": placed.timestamp_ms}


def _parse(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise refuse("the body is not JSON") from None
    if not isinstance(given, dict):
        raise refuse("the body must be an object with key, value, headers and partition")
    unknown = given.keys() - {"key", "value", "headers", "partition"}
    if unknown:
        raise refuse(f"unknown field {sorted(unknown)[0]!r}")
    return given


def _headers(given: object) -> list[tuple[str, bytes | None]]:
    if not isinstance(given, list) or len(given) > MOST_HEADERS:
        raise refuse(f"headers must be a list of at most {MOST_HEADERS} pairs")
    headers = []
    for pair in given:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise refuse("a header must be a pair of a name and a value")
        _bytes_of(f"the name of header {pair[0][:40]!r}", {"text": pair[0]})
        headers.append((pair[0], _bytes_of(f"header {pair[0][:40]!r}", pair[1])))
    return headers


def _bytes_of(name: str, given: object) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, dict) and len(given) == 1:
        text, coded = given.get("text"), given.get("base64")
        if isinstance(text, str):
            try:
                return text.encode()
            except UnicodeEncodeError:
                raise refuse(f"{name} has half of a character") from None
        if isinstance(coded, str):
            try:
                return base64.b64decode(coded, validate=True)
            except (binascii.Error, ValueError):
                raise refuse(f"{name} is not base64") from None
    raise refuse(f'{name} must be null, {{"text": "…"}} or {{"base64": "…"}}')
