"""A console in the test's loop, and requests as its page sends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from ottla.client.consumer_options import ConsumerOptions
from ottla.client.producer_options import ProducerOptions
from ottla.console.clients import ADMIN_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, ClientSettings
from ottla.console.running import running_console


@dataclass
class ConsolePage:
    """The requests of a page. `headers` are sent with each, besides the token and the host."""

    port: int
    token: str
    headers: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str) -> Any:
        """The JSON of a path that is answered with 200."""
        status, answer = await self.ask("GET", path)
        assert status == 200, answer
        return answer

    async def refused(self, path: str) -> tuple[int, str]:
        """The status and the line of a path that is refused."""
        status, answer = await self.ask("GET", path)
        assert list(answer) == ["error"]
        return status, answer["error"]

    async def post(self, path: str, content: object) -> tuple[int, Any]:
        """The status and the JSON of a request with a body."""
        return await self.ask("POST", path, json.dumps(content).encode(), {"Content-Type": "application/json"})

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status and the JSON of any request for data."""
        status, _, answer = await self.raw(method, f"/api/{path}", body, headers)
        return status, json.loads(answer)

    async def raw(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers in lower case and the body of any request."""
        reader, writer = await self.open(method, target, body, {"Connection": "close", **(headers or {})})
        try:
            async with asyncio.timeout(20):
                status, found = await read_head(reader)
                return status, found, await reader.read()
        finally:
            writer.close()

    async def open(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which a request was sent. A header whose value is empty is left out."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        own = {"Host": f"127.0.0.1:{self.port}", "X-Ottla-Token": self.token, "Content-Length": str(len(body))}
        lines = [f"{name}: {value}" for name, value in {**own, **self.headers, **(headers or {})}.items() if value]
        writer.write("\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode() + body)
        return reader, writer


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer."""
    first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    return int(first.split()[1]), {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}


def options_of(kind: type, of_file: Mapping[str, object]) -> dict[str, object]:
    """Those that a client of this kind has."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in of_file.items() if name in names}


@asynccontextmanager
async def console_page(
    servers: str,
    *,
    is_read_only: bool = False,
    timeout_ms: int = 5_000,
    of_file: Mapping[str, object] | None = None,
) -> AsyncIterator[ConsolePage]:
    """A console of a broker, which does not have to run, and its page. `of_file`: options of the user's file for
    consumers and producers, as those clients have them.
    """
    quick = {"default_api_timeout_ms": timeout_ms, "request_timeout_ms": timeout_ms}
    settings = ClientSettings(
        servers,
        admin={**ADMIN_DEFAULTS, **quick},
        consumer={**CONSUMER_DEFAULTS, **quick, **options_of(ConsumerOptions, of_file or {})},
        producer={**PRODUCER_DEFAULTS, **options_of(ProducerOptions, of_file or {})},
    )
    async with running_console(settings, "127.0.0.1", 0, is_read_only=is_read_only) as url:
        address, _, token = url.partition("/#token=")
        yield ConsolePage(int(address.rpartition(":")[2]), token)
