"""Plain classes: what a reader of a declaration expects, without dataclasses."""

from __future__ import annotations

from typing import ClassVar

import pytest

from ottla.plain import Plain, field


class Point(Plain):
    kind: ClassVar[str] = "point"
    x: int
    y: int = 2
    seen: list[str] = field(factory=list)


class Named(Point):
    name: str = ""


class Fixed(Plain, eq=False, frozen=True):
    x: int


def test_fields_are_given_by_place_or_by_name_and_defaults_are_made_for_each_object() -> None:
    point, other = Point(1), Point(x=1, y=5)
    point.seen.append("here")
    assert (point.x, point.y, point.seen) == (1, 2, ["here"])
    assert (other.y, other.seen) == (5, [])
    assert point.kind == "point"


def test_fields_of_a_base_class_come_first() -> None:
    assert Named(1, 2, [], "n").field_values() == {"x": 1, "y": 2, "seen": [], "name": "n"}


@pytest.mark.parametrize(
    ("values", "named", "message"),
    [
        ((), {}, "Point: x is missing"),
        ((1, 2, [], 4), {}, "Point has 3 fields, 4 were given"),
        ((1,), {"z": 1}, "Point has no field z"),
        ((1,), {"x": 1}, "Point has no field x, or it was given twice"),
    ],
)
def test_wrong_arguments_are_refused(values: tuple[object, ...], named: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Point(*values, **named)  # type: ignore[arg-type]  # refusing these is what is tested


def test_objects_are_equal_when_their_class_and_fields_are_and_have_no_hash() -> None:
    assert Point(1) == Point(1) != Point(2)
    assert Point(1) != Named(1)
    assert repr(Point(1)) == "Point(x=1, y=2, seen=[])"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_without_equality_an_object_equals_itself_only() -> None:
    fixed = same = Fixed(1)
    assert fixed == same
    assert fixed != Fixed(1)
    assert {fixed: 1}[same] == 1


def test_fields_are_slots_and_a_frozen_class_refuses_assignments() -> None:
    point, fixed = Point(1), Fixed(1)
    point.x = 3
    assert point.x == 3
    with pytest.raises(AttributeError):
        point.z = 1  # type: ignore[attr-defined]  # there is no such slot
    with pytest.raises(AttributeError, match="Fixed is frozen: x cannot be assigned"):
        fixed.x = 2  # type: ignore[misc]  # frozen
    assert fixed.x == 1
