"""Which method of the registry answers a request: Confluent's paths, bodies and errors.

    GET    /subjects                                  ?subjectPrefix= &deleted= &deletedOnly= &offset= &limit=
    POST   /subjects/S                                look a schema up            ?normalize= &deleted=
    DELETE /subjects/S                                ?permanent=
    GET    /subjects/S/versions                       ?deleted= &deletedOnly=
    POST   /subjects/S/versions                       register a schema           ?normalize=
    GET    /subjects/S/versions/V                     V: a number or `latest`     ?deleted= &format=
    GET    /subjects/S/versions/V/schema, /referencedby
    DELETE /subjects/S/versions/V                     ?permanent=
    GET    /schemas, /schemas/types
    GET    /schemas/ids/N, /schema, /subjects, /versions   ?subject= &fetchMaxId= &format= &deleted=
    POST   /compatibility/subjects/S/versions[/V]     ?verbose= &normalize=
    GET    /config[/S], PUT, DELETE                   ?defaultToGlobal=
    GET    /mode[/S], PUT, DELETE                     ?defaultToGlobal= &force=
    GET    /contexts, and /contexts/C before any path above: its subjects are in that context
    GET    /, /v1/metadata/version

An error is `{"error_code": 40401, "message": "one line"}`, with Confluent's numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

from ottla.registry.errors import NOT_FOUND, RegistryError, invalid_version
from ottla.registry.guard import check_body_type, check_sender
from ottla.registry.json_text import write_json
from ottla.registry.names import checked_subject, scope_of, split_context
from ottla.registry.records import Stored
from ottla.registry.registry import Registry
from ottla.registry.requests import config_of, mode_of, read_body, submitted_schema
from ottla.registry.schemas import TYPES
from ottla.version import __version__
from ottla.web_server import BadRequest, Request, Response

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
LATEST: Final = ("latest", "-1")
METHOD_NOT_ALLOWED: Final = 405
_T = TypeVar("_T")


def refusal(refused: BadRequest) -> Response:
    """The answer to a request that the HTTP server or a guard refuses."""
    return _answer({"error_code": refused.status.value, "message": str(refused)}, refused.status)


class Routes:
    """Answers requests. `names`: of this machine, besides those of `ottla.addressed`; None: any name may be used."""

    def __init__(self, registry: Registry, names: Sequence[str] | None) -> None:
        self._registry = registry
        self._names = names

    async def answer(self, request: Request) -> Response:
        """The response to a request. Raises BadRequest."""
        check_sender(request, self._names)
        try:
            path = tuple(part for part in request.path if part)
            context = ""
            if path[:1] == ("contexts",) and len(path) > 2:
                context, path = f":{path[1].strip(':')}:", path[2:]
            return _answer(await self._route(_Asked(request, path, context)))
        except RegistryError as error:
            return _answer({"error_code": error.code, "message": error.message}, error.status)

    async def _route(self, asked: _Asked) -> object:
        match asked.path:
            case ():
                return {}
            case ("v1", "metadata", "version"):
                return {"version": f"ottla-{__version__}"}
            case ("contexts",):
                return await self._contexts()
            case ("subjects", *rest):
                return await self._subjects(asked, rest)
            case ("schemas", *rest):
                return await self._schemas(asked, rest)
            case ("compatibility", "subjects", subject, "versions", *rest) if len(rest) <= 1:
                return await self._compatibility(asked, subject, rest)
            case ("config", *rest) if len(rest) <= 1:
                return await self._config(asked, rest)
            case ("mode", *rest) if len(rest) <= 1:
                return await self._mode(asked, rest)
        raise _no_such_path()

    # -- subjects

    async def _subjects(self, asked: _Asked, rest: Sequence[str]) -> object:
        match asked.method, rest:
            case "GET", []:
                return await self._subject_names(asked)
            case "POST", [subject]:
                found = await self._registry.look_up(
                    asked.subject(subject),
                    submitted_schema(asked.body()),
                    normalizes=asked.flag("normalize"),
                    with_deleted=asked.flag("deleted"),
                )
                return await self._shown(asked, found)
            case "DELETE", [subject]:
                return await self._registry.delete_subject(asked.subject(subject), is_permanent=asked.flag("permanent"))
            case "GET", [subject, "versions"]:
                return await self._version_numbers(asked, subject)
            case "POST", [subject, "versions"]:
                made = await self._registry.register(
                    asked.subject(subject), submitted_schema(asked.body()), normalizes=asked.flag("normalize")
                )
                return {"id": made.schema_id}
            case method, [subject, "versions", version, *part]:
                return await self._version(asked, method, (asked.subject(subject), _version(version)), part)
        raise _no_such_path() if len(rest) > 2 or (len(rest) == 2 and rest[1] != "versions") else _wrong_method()

    async def _version(self, asked: _Asked, method: str, place: tuple[str, int | None], part: list[str]) -> object:
        subject, version = place
        match method, part:
            case "DELETE", []:
                return await self._registry.delete_version(subject, version, is_permanent=asked.flag("permanent"))
            case "GET", []:
                found = await self._registry.version(subject, version, with_deleted=asked.flag("deleted"))
                return await self._shown(asked, found)
            case "GET", ["schema"]:
                found = await self._registry.version(subject, version, with_deleted=asked.flag("deleted"))
                return Raw(await self._registry.formatted(found, asked.text("format")))
            case "GET", ["referencedby"]:
                found = await self._registry.version(subject, version, with_deleted=True)
                referrers = (await self._registry.log.state()).referrers(found.subject, found.version)
                return asked.page(sorted({one.schema_id for one in referrers}))
        raise _no_such_path() if part else _wrong_method()

    async def _subject_names(self, asked: _Asked) -> object:
        state = await self._registry.log.state()
        prefix = asked.text("subjectPrefix")
        wants_all = prefix == ":*:"
        prefix = "" if wants_all else prefix
        names = []
        for name in sorted(state.subjects):
            context, own = split_context(name)
            in_context = not asked.context or asked.context == f":{context}:"
            starts = name.startswith(prefix) if prefix.startswith(":") or not asked.context else own.startswith(prefix)
            if in_context and (wants_all or starts) and asked.wants(list(state.subjects[name].values())):
                names.append(name)
        return asked.page(names)

    async def _version_numbers(self, asked: _Asked, subject: str) -> object:
        name = asked.subject(subject)
        with_deleted = asked.flag("deleted") or asked.flag("deletedOnly")
        found = (await self._registry.log.state()).versions(name, with_deleted=with_deleted)
        await self._registry.version(name, None, with_deleted=with_deleted)  # raises if there is none
        return asked.page([one.version for one in found if not asked.flag("deletedOnly") or one.is_deleted])

    async def _contexts(self) -> object:
        state = await self._registry.log.state()
        return sorted({".", *(split_context(name)[0] for name in state.subjects)})

    async def _shown(self, asked: _Asked, stored: Stored) -> object:
        shown = stored.to_json()
        form = asked.text("format")
        if form:
            shown["schema"] = await self._registry.formatted(stored, form)
        if stored.is_deleted:
            shown["deleted"] = True
        return shown

    # -- schemas

    async def _schemas(self, asked: _Asked, rest: Sequence[str]) -> object:
        if asked.method != "GET":
            raise _wrong_method()
        match rest:
            case []:
                return await self._all_schemas(asked)
            case ["types"]:
                return list(TYPES)
            case ["ids", text, *part]:
                return await self._by_id(asked, _schema_id(text), part)
        raise _no_such_path()

    async def _by_id(self, asked: _Asked, schema_id: int, part: Sequence[str]) -> object:
        subject = asked.text("subject")
        subject = f"{asked.context}{subject}" if asked.context and not subject.startswith(":.") else subject
        match part:
            case []:
                found = await self._registry.by_id(schema_id, subject)
                shown = found.content.to_json()
                shown["schema"] = await self._registry.formatted(found, asked.text("format"))
                if asked.flag("fetchMaxId"):
                    state = await self._registry.log.state()
                    shown["maxId"] = state.highest_id(split_context(found.subject)[0])
                return shown
            case ["schema"]:
                found = await self._registry.by_id(schema_id, subject)
                return Raw(await self._registry.formatted(found, asked.text("format")))
            case ["subjects" | "versions" as what]:
                holders = await self._registry.holders(schema_id, subject, with_deleted=asked.flag("deleted"))
                if what == "subjects":
                    return asked.page(sorted({one.subject for one in holders}))
                places = sorted((one.subject, one.version) for one in holders)
                return asked.page([{"subject": name, "version": number} for name, number in places])
        raise _no_such_path()

    async def _all_schemas(self, asked: _Asked) -> object:
        state = await self._registry.log.state()
        prefix, found = asked.text("subjectPrefix"), []
        for name in sorted(state.subjects):
            if name.startswith(prefix) or prefix == ":*:":
                versions = state.versions(name, with_deleted=asked.flag("deleted"))
                found += versions[-1:] if asked.flag("latestOnly") else versions
        return [one.to_json() for one in asked.page(found)]

    # -- compatibility, settings

    async def _compatibility(self, asked: _Asked, subject: str, rest: Sequence[str]) -> object:
        if asked.method != "POST":
            raise _wrong_method()
        version = _version(rest[0]) if rest else "all"
        submitted = submitted_schema(asked.body())
        name = asked.subject(subject)
        lines = await self._registry.compare(name, submitted, version, normalizes=asked.flag("normalize"))
        return {"is_compatible": not lines, **({"messages": lines} if asked.flag("verbose") else {})}

    async def _config(self, asked: _Asked, rest: Sequence[str]) -> object:
        subject = asked.scope(rest)
        match asked.method:
            case "GET":
                return await self._registry.config(subject, falls_back=asked.flag("defaultToGlobal"))
            case "PUT":
                settings = config_of(asked.body())
                await self._registry.set_config(subject, settings)
                level = settings.pop("compatibilityLevel", None)
                return {**({} if level is None else {"compatibility": level}), **settings}
            case "DELETE":
                return await self._registry.delete_config(subject)
        raise _wrong_method()

    async def _mode(self, asked: _Asked, rest: Sequence[str]) -> object:
        subject = asked.scope(rest)
        match asked.method:
            case "GET":
                return {"mode": await self._registry.mode(subject, falls_back=asked.flag("defaultToGlobal"))}
            case "PUT":
                mode = mode_of(asked.body())
                await self._registry.set_mode(subject, mode, is_forced=asked.flag("force"))
                return {"mode": mode}
            case "DELETE" if subject is not None:
                return {"mode": await self._registry.delete_mode(subject)}
        raise _wrong_method()


class Raw(str):
    """An answer that is a schema's own text."""


class _Asked:
    """A request: its path without empty parts and context, and its query."""

    def __init__(self, request: Request, path: tuple[str, ...], context: str) -> None:
        self.method = "GET" if request.method == "HEAD" else request.method
        self.path = path
        self.context = context
        self._request = request

    def body(self) -> dict[str, Any]:
        check_body_type(self._request)
        return read_body(self._request.body)

    def subject(self, text: str) -> str:
        return checked_subject(f"{self.context}{text}" if self.context and not text.startswith(":.") else text)

    def scope(self, rest: Sequence[str]) -> str | None:
        """The subject or the context of a setting; None for all."""
        if not rest:
            return scope_of(self.context) if self.context else None
        name = rest[0] if rest[0].startswith(":.") else f"{self.context}{rest[0]}"
        return scope_of(name) if not split_context(name)[1] else checked_subject(name)

    def text(self, name: str) -> str:
        return self._request.query.get(name, "")

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def wants(self, versions: Sequence[Stored]) -> bool:
        """Whether a subject is listed, by `deleted` and `deletedOnly`."""
        if self.flag("deletedOnly"):
            return all(one.is_deleted for one in versions)
        return self.flag("deleted") or any(not one.is_deleted for one in versions)

    def page(self, found: list[_T]) -> list[_T]:
        """The part of a list that `offset` and `limit` name; a limit below 1 is none."""
        offset, limit = self._number("offset", 0), self._number("limit", -1)
        return found[max(0, offset) :][: limit if limit > 0 else None]

    def _number(self, name: str, default: int) -> int:
        text = self.text(name)
        digits = text.removeprefix("-")
        if not text:
            return default
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 10):
            raise _no_such_path()
        return int(text)


def _version(text: str) -> int | None:
    if text in LATEST:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= 10 and 0 < int(text) < 2**31:
        return int(text)
    raise invalid_version(text)


def _schema_id(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 10:
        return int(text)
    raise RegistryError(NOT_FOUND, "HTTP 404 Not Found")


def _no_such_path() -> RegistryError:
    return RegistryError(NOT_FOUND, "HTTP 404 Not Found")


def _wrong_method() -> RegistryError:
    return RegistryError(METHOD_NOT_ALLOWED, "HTTP 405 Method Not Allowed")


def _answer(content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    body = content if isinstance(content, Raw) else write_json(content)
    return Response(status, CONTENT_TYPE, body.encode("utf-8", "backslashreplace"))
