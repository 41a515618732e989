"""What makes two schemas incompatible: a kind by Confluent's name, a place, and a line for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A reason. `path` is in the reader's schema, from `/` or `#`."""

    kind: str
    path: str
    line: str

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:'{self.line}', path:'{self.path}'}}"
