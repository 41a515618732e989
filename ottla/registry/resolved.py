"""The schema that a reference names, with the name by which it is referred to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resolved:
    """See the module. `type` as in the API, `text` as it is stored."""

    name: str
    type: str
    text: str
