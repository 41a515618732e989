"""A schema registry in the test's process, and requests to it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True)
class RegistryApi:
    """Requests to a registry at a URL."""

    url: str

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": CONTENT_TYPE, **(headers or {})})
        request.method = method
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.headers["Content-Type"] == CONTENT_TYPE
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    def get(self, path: str) -> Any:
        """The JSON of a path that is answered with 200."""
        status, answer = self.ask("GET", path)
        assert status == 200, answer
        return answer

    def do(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of a request that is answered with 200."""
        status, answer = self.ask(method, path, body)
        assert status == 200, answer
        return answer

    def refused(self, method: str, path: str, body: object = None) -> tuple[int, int, str]:
        """The status, the code and the message of a request that is refused."""
        status, answer = self.ask(method, path, body)
        assert sorted(answer) == ["error_code", "message"], answer
        return status, answer["error_code"], answer["message"]

    def register(self, subject: str, schema: object, **more: object) -> int:
        """The id of a schema that is registered."""
        return int(self.do("POST", f"/subjects/{subject}/versions", body_of(schema, **more))["id"])


def body_of(schema: object, **more: object) -> dict[str, object]:
    """The body of a request with a schema: a text as it is, else JSON."""
    return {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}


def record(*fields: object, name: str = "R") -> dict[str, object]:
    """An Avro record; a field is `name:type`, and `name:type=default` with a default in JSON, or the field itself."""
    made: list[object] = []
    for field in fields:
        if not isinstance(field, str):
            made.append(field)
            continue
        own, _, kind = field.partition(":")
        kind, equals, default = kind.partition("=")
        made.append({"name": own, "type": kind, **({"default": json.loads(default)} if equals else {})})
    return {"type": "record", "name": name, "fields": made}
