"""Which function answers a path: the files of the page, and the JSON that it asks for.

    GET  /, /style.css, /main.js, …                      the page; no token
    GET  /api/status                                     the cluster, and what this console may do
    GET  /api/topics
    GET  /api/topics/NAME                                partitions, configuration
    GET  /api/topics/NAME/groups                         the groups that read it, with their lag
    GET  /api/topics/NAME/records?from=newest&limit=50   a page of records (`reading.py`)
    GET  /api/topics/NAME/records/PARTITION/OFFSET       one record in full
    GET  /api/topics/NAME/tail                           lines of JSON, until the page closes the connection
    POST /api/topics/NAME/records                        write a record (`sending.py`); not with --read-only
    GET  /api/groups, /api/groups/ID, /api/brokers

An error is `{"error": "one line"}`: 404 for what does not exist, 403 for a right or a login that the console lacks, 502
if the cluster refuses for another reason or does not answer. After 4xx the page does not ask again by itself.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final

from ottla.client import AdminError, ErrorCode, KafkaError
from ottla.console import brokers, groups, topics
from ottla.console.clients import MISSING, Clients, line_of
from ottla.console.guard import Guard
from ottla.console.page_files import page_file
from ottla.console.queries import integer
from ottla.console.reading import Reading, read_one, read_page
from ottla.console.sending import send_record
from ottla.console.tail import tail
from ottla.protocol.errors import UnencodableMessage
from ottla.web_server import BadRequest, Request, Response

_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)


class Routes:
    """Answers requests."""

    def __init__(self, clients: Clients, guard: Guard, *, is_read_only: bool) -> None:
        self._clients = clients
        self._guard = guard
        self._is_read_only = is_read_only

    async def answer(self, request: Request) -> Response:
        """The response to a request. Raises BadRequest."""
        self._guard.check_host(request)
        if request.path[0] != "api":
            return page_file(request)
        self._guard.check_access(request)
        try:
            if request.method == "POST":
                return await self._post(request)
            if request.method != "GET":
                raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "GET and POST only")
            return await self._get(request)
        except UnencodableMessage as error:  # a name of 40,000 letters
            raise BadRequest(HTTPStatus.BAD_REQUEST, str(error)) from None
        except KafkaError as error:
            raise _refused(error) from None

    async def _get(self, request: Request) -> Response:
        match request.path[1:]:
            case ("status",):
                admin = await self._clients.admin()
                return _json(await brokers.status(admin, self._clients.servers, is_read_only=self._is_read_only))
            case ("topics",):
                return _json(await topics.list_topics(await self._clients.admin()))
            case ("topics", name):
                return _json(await topics.describe_topic(await self._clients.admin(), name))
            case ("topics", name, "groups"):
                return _json(await topics.readers_of(await self._clients.admin(), name))
            case ("topics", name, "records"):
                return _json(await read_page(self._clients, name, Reading.of(request.query)))
            case ("topics", name, "records", partition, offset):
                place = integer("partition", partition, 0, 2**31 - 1), integer("offset", offset)
                return _json(await read_one(self._clients, name, *place))
            case ("topics", name, "tail"):
                lines = await tail(self._clients, name, request.query)
                return Response(HTTPStatus.OK, "application/x-ndjson", stream=lines)
            case ("groups",):
                return _json(await groups.list_groups(await self._clients.admin()))
            case ("groups", group_id):
                return _json(await groups.describe_group(self._clients, group_id))
            case ("brokers",):
                return _json(await brokers.describe_brokers(await self._clients.admin()))
        raise BadRequest(HTTPStatus.NOT_FOUND, "there is no such path")

    async def _post(self, request: Request) -> Response:
        match request.path[1:]:
            case ("topics", name, "records"):
                if self._is_read_only:
                    raise BadRequest(HTTPStatus.FORBIDDEN, "the console was started with --read-only")
                if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                    raise BadRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
                return _json(await send_record(self._clients, name, request.body))
        raise BadRequest(HTTPStatus.NOT_FOUND, "there is no such path")


def _refused(error: KafkaError) -> BadRequest:
    if isinstance(error, AdminError) and len(error.errors) == 1:  # of the one topic or group that was asked for
        ((name, only),) = error.errors.items()
        line = only.message if name in only.message else f"{name}: {only.message}"
        error = KafkaError(only.code, line)
    if error.code in MISSING:
        status = HTTPStatus.NOT_FOUND
    else:
        status = HTTPStatus.FORBIDDEN if error.code in _FORBIDDEN else HTTPStatus.BAD_GATEWAY
    return BadRequest(status, " ".join(line_of(error).split()))


def _json(content: dict[str, Any]) -> Response:
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return Response(HTTPStatus.OK, "application/json", body)
