"""A simulated administrator of client quotas, who knows which of the changes were acknowledged."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kit.simulator.model import Violation

from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from ottla.protocol.api.describe_client_quotas import DescribeClientQuotasResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line

Entity = tuple[str, str]
"""(type, name)"""
Values = Mapping[str, float | None]
"""By kind of quota; None: none."""
ALTER_VERSION = 1


class QuotaAdministrator:
    """Sets and removes quotas of some entities; one change at a time. `draw` gives new values for one of them."""

    def __init__(
        self, chance: random.Random, entities: Sequence[Entity], draw: Callable[[random.Random, str], Values]
    ) -> None:
        self._chance = chance
        self._entities = entities
        self._draw = draw
        self._certain: dict[tuple[Entity, str], float | None] = {}
        self._asked: dict[tuple[Entity, str], set[float | None]] = {}
        """What may be set as well: of changes that were not acknowledged."""
        self._waits = False

    def reconnect(self) -> None:
        """The broker has restarted: answers of before will never come."""
        self._waits = False

    def possible(self, entity: Entity, kind: str) -> set[float | None]:
        """What the quota of an entity may be now."""
        place = entity, kind
        return {self._certain.get(place), *self._asked.get(place, ())}

    def change(self, line: Line) -> None:
        """Set or remove those of one entity."""
        if not self._waits:
            entity = self._chance.choice(self._entities)
            self._alter(line, {entity: self._draw(self._chance, entity[1])})

    def change_all(self, line: Line) -> None:
        """Set those of all entities."""
        if not self._waits:
            self._alter(line, {entity: self._draw(self._chance, entity[1]) for entity in self._entities})

    def _alter(self, line: Line, wanted: Mapping[Entity, Values]) -> None:
        self._waits = True
        for entity, values in wanted.items():
            for kind, value in values.items():
                self._asked.setdefault((entity, kind), set()).add(value)

        def answered(response: Response) -> None:
            assert isinstance(response, AlterClientQuotasResponse)
            self._waits = False
            for entry in response.entries:
                one = entry.entity[0]
                entity = one.entity_type, one.entity_name or ""
                if entry.error_code == ErrorCode.NONE:
                    for kind, value in wanted[entity].items():
                        self._certain[entity, kind] = value
                        self._asked[entity, kind].clear()

        kind_of = AlterClientQuotasRequest
        entries = [
            kind_of.EntryData(
                entity=[kind_of.EntityData(entity_type=entity[0], entity_name=entity[1])],
                ops=[
                    kind_of.OpData(key=kind, value=value or 0.0, remove=value is None) for kind, value in values.items()
                ],
            )
            for entity, values in wanted.items()
        ]
        line.send(kind_of(entries=entries, validate_only=False), ALTER_VERSION, answered)

    def audit(self, answer: DescribeClientQuotasResponse) -> None:
        """What a restart has found. Raises Violation."""
        found = {
            ((entry.entity[0].entity_type, entry.entity[0].entity_name or ""), value.key): value.value
            for entry in answer.entries or ()
            for value in entry.values
        }
        for place in {*self._asked, *(one for one in found if one[0] in self._entities)}:
            value, certain = found.get(place), self._certain.get(place)
            if value != certain and value not in self._asked.get(place, ()):
                raise Violation(f"the quota {place} is {value}, acknowledged was {certain}")
            self._certain[place], self._asked[place] = value, set()
