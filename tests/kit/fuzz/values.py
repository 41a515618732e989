"""Hostile messages, drawn from the declarations themselves: structure-aware, because every field is of its type.

A message has a mood: mostly sane with one wrong thing in it, sane throughout, or hostile everywhere. Choices come from
a `random.Random`, so that a seed, Hypothesis's bytes or a fuzzer's (`choices.py`) can make them.
"""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from kit.fuzz.records import hostile_records
from kit.fuzz.vocabulary import (
    CONFIG_VALUES,
    FLOATS,
    INTEGERS,
    NAMES_BY_FIELD,
    REGEXES,
    SANE,
    STRINGS,
    Vocabulary,
)

from ottla.protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.message import Message, encode
from ottla.protocol.plan import FieldPlan, StructPlan, plan_message

MOST_ELEMENTS = 5_000
"""Elements of one message, so that one input costs milliseconds."""
BITS = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64, "Uint16": 16, "Uint32": 32}


class MessageMaker:
    """Makes requests. `hostility` is the share of fields that are hostile; `records` are topics' batches."""

    def __init__(self, chance: random.Random, reported: Vocabulary) -> None:
        self.chance = chance
        self.reported = reported
        self._hostility = 0.0
        self.elements = 0
        """So many more may be made for the message at hand."""

    def message(self, cls: type[Message], version: int) -> Any:
        """A message of the class at the version."""
        self._hostility = self.chance.choice((0.0, 0.0, 0.04, 0.04, 0.12, 0.5))
        self.elements = MOST_ELEMENTS
        return self.struct(plan_message(cls, version))

    def struct(self, plan: StructPlan) -> Any:
        """A struct with all of its fields, and some of those that are tagged."""
        values = {field.name: self._field(field) for field in plan.fields}
        for field in plan.tagged:
            if self.chance.random() < 0.3:
                values[field.name] = self._field(field)
        return plan.cls(**values)

    def _field(self, field: FieldPlan) -> Any:
        if field.is_nullable and self.chance.random() < 0.08:
            return None
        if field.is_array:
            return self._array(field)
        return self.element(field)

    def _array(self, field: FieldPlan) -> list[Any]:
        chance = self.chance
        count = chance.choice((1, 1, 1, 2, 3))
        many = chance.random() < self._hostility
        if many:
            count = chance.choice((0, 0, 40, 40, 1000, 5000))
        count = max(min(count, self.elements), 0)
        self.elements -= count
        if not many or count < 40:
            return [self.element(field) for _ in range(count)]
        before = self.elements
        few = [self.element(field) for _ in range(chance.choice((1, 2, 20)))]
        each = 1 + (before - self.elements) // len(few)
        count = max(min(count, before // each), 1)
        self.elements -= count * (each - 1)
        return [few[slot % len(few)] for slot in range(count)]  # names repeated

    def element(self, field: FieldPlan) -> Any:
        """One element of an array, or the value of a field that is none."""
        if field.struct is not None:
            return self.struct(field.struct)
        assert field.primitive is not None
        return self.value(field.name, field.primitive.name)

    def value(self, name: str, type_name: str) -> Any:
        """A value for a field of this name and type."""
        chance = self.chance
        is_hostile = chance.random() < self._hostility
        if type_name == "Bool":
            return chance.choice(SANE.get(name, (False, True)))
        if type_name in BITS:
            return self._integer(name, type_name, is_hostile)
        if type_name == "Float64":
            return chance.choice(FLOATS)
        if type_name == "Uuid":
            reported = self.reported.one(name, chance)
            if reported is not None and not is_hostile:
                return reported
            return UUID(int=chance.choice((0, 1, 99, 100, (1 << 128) - 1, chance.getrandbits(128))))
        if type_name == "Records":
            return hostile_records(chance)
        if type_name in ("Bytes", "NullableBytes"):
            return self._bytes(name, is_hostile)
        return self._string(name, type_name, is_hostile)

    def _integer(self, name: str, type_name: str, is_hostile: bool) -> int:
        chance, bits = self.chance, BITS[type_name]
        low, high = (
            (0, (1 << bits) - 1) if type_name.startswith("Uint") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        )
        if not is_hostile:
            reported = self.reported.one(name, chance) if chance.random() < 0.7 else None
            sane = SANE.get(name, (0, 1, 2))
            value = reported if isinstance(reported, int) else chance.choice(sane)
            if isinstance(value, int) and low <= value <= high:
                return int(value)
        fitting = [each for each in INTEGERS if low <= each <= high]
        return chance.choice([*fitting, low, high, chance.randint(low, high)])

    def _string(self, name: str, type_name: str, is_hostile: bool) -> str | None:
        chance = self.chance
        if is_hostile:
            pools = [STRINGS, CONFIG_VALUES, REGEXES] if "regex" in name else [STRINGS, STRINGS, CONFIG_VALUES]
            return str(chance.choice(chance.choice(pools)))
        reported = self.reported.one(name, chance) if chance.random() < (0.8 if name == "member_id" else 0.3) else None
        pool = NAMES_BY_FIELD.get(name) or SANE.get(name) or ("", "x", "plain")
        value = reported if isinstance(reported, str) else chance.choice(pool)
        if value is None and type_name == "String":
            return ""
        return str(value) if value is not None else None

    def _bytes(self, name: str, is_hostile: bool) -> bytes:
        chance = self.chance
        if name not in ("metadata", "assignment", "user_data") or chance.random() < 0.1:
            return chance.choice((b"", b"\0", b"\xff" * 9, chance.randbytes(chance.randrange(60))))
        cls = ConsumerProtocolSubscription if name == "metadata" else ConsumerProtocolAssignment
        version = chance.randint(0, 3)
        data = version.to_bytes(2, "big") + encode(self.struct(plan_message(cls, version)), version)
        return mutate(chance, data) if is_hostile else data


def mutate(chance: random.Random, data: bytes) -> bytes:
    """The bytes with one to four changes: bits, bytes, numbers that count something, cuts, repeats, insertions."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        if not changed:
            return chance.randbytes(chance.randrange(20))
        at = chance.randrange(len(changed))
        kind = chance.randrange(8)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, 0xC0))
        elif kind == 2:
            size = chance.choice((1, 2, 4, 8))
            number = chance.choice(INTEGERS) & ((1 << 8 * size) - 1)
            changed[at : at + size] = number.to_bytes(size, "big")
        elif kind == 3:
            del changed[at:]
        elif kind == 4:
            del changed[at : at + chance.choice((1, 2, 4, 20))]
        elif kind == 5:
            changed[at:at] = chance.choice(
                (b"\xff\xff\xff\xff\x0f", b"\x80" * 5, b"\xed\xa0\x80", b"\xc3\x28", b"\0" * 4)
            )
        elif kind == 6:
            changed += changed[at : at + 64] * chance.choice((1, 3, 50))
        else:
            changed += chance.randbytes(chance.randrange(1, 9))
    return bytes(changed)
