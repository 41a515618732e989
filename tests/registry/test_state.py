"""What the records come to, in the order of the log."""

from __future__ import annotations

import pytest

from ottla.registry.records import Content, Reference, SchemaKey, ScopeKey, Stored, object_value, schema_value
from ottla.registry.state import State


def schema(number: int) -> Content:
    return Content("AVRO", f'"schema {number}"')


def put(state: State, subject: str, version: int, schema_id: int, content: Content, *, deleted: bool = False) -> None:
    stored = Stored(subject, version, schema_id, content, deleted)
    state.replay(SchemaKey(subject, version).to_bytes(), schema_value(stored))


def remove(state: State, subject: str, version: int) -> None:
    state.replay(SchemaKey(subject, version).to_bytes(), None)


def delete_subject(state: State, subject: str, version: int) -> None:
    value = object_value({"subject": subject, "version": version})
    state.replay(ScopeKey("DELETE_SUBJECT", subject).to_bytes(), value)


def numbers(state: State, subject: str, *, with_deleted: bool = False) -> list[int]:
    return [one.version for one in state.versions(subject, with_deleted=with_deleted)]


def test_ids_and_versions_grow_by_one() -> None:
    state = State()
    assert (state.next_id("."), state.next_version("a")) == (1, 1)
    put(state, "a", 1, 1, schema(1))
    put(state, "a", 2, 2, schema(2))
    put(state, "b", 1, 1, schema(1))
    assert (state.next_id("."), state.next_version("a"), state.next_version("b")) == (3, 3, 2)
    assert state.id_of(".", schema(2)) == 2
    assert [(one.subject, one.version) for one in state.holders(".", 1)] == [("a", 1), ("b", 1)]


def test_an_id_is_not_given_again_after_its_schema_is_gone() -> None:
    state = State()
    put(state, "a", 1, 5, schema(1))
    remove(state, "a", 1)
    assert (state.subjects, state.holders(".", 5), state.id_of(".", schema(1))) == ({}, [], None)
    assert (state.next_id("."), state.next_version("a")) == (6, 1)


def test_contexts_have_ids_of_their_own() -> None:
    state = State()
    put(state, "a", 1, 1, schema(1))
    put(state, ":.x:a", 1, 1, schema(2))
    assert [state.holders(context, 1)[0].content for context in (".", ".x")] == [schema(1), schema(2)]
    assert state.next_id(".y") == 1


def test_a_soft_deletion_ends_with_the_version_that_it_names() -> None:
    state = State()
    for version in (1, 2, 3):
        put(state, "a", version, version, schema(version))
    delete_subject(state, "a", 2)
    assert (numbers(state, "a"), numbers(state, "a", with_deleted=True)) == ([3], [1, 2, 3])
    assert state.holders(".", 1)[0].is_deleted


def test_the_deletion_of_one_version() -> None:
    state = State()
    put(state, "a", 1, 1, schema(1))
    put(state, "a", 1, 1, schema(1), deleted=True)
    assert (numbers(state, "a"), state.id_of(".", schema(1)), state.next_version("a")) == ([], 1, 2)


@pytest.mark.parametrize("later", [(1, 2, schema(2)), (2, 1, schema(2)), (1, 1, schema(2))])
def test_what_is_first_in_the_log_counts(later: tuple[int, int, Content]) -> None:
    """Another registry gave the same number, or the same id, to another schema a moment later."""
    state = State()
    put(state, "a", 1, 1, schema(1))
    version, schema_id, content = later
    put(state, "a", version, schema_id, content)
    assert [(one.schema_id, one.content) for one in state.versions("a")] == [(1, schema(1))]
    assert state.id_of(".", schema(2)) is None


def test_settings_are_taken_from_the_nearest_scope() -> None:
    state = State()
    for scope, level in ((None, "FULL"), (":.x:", "NONE"), (":.x:a", "FORWARD")):
        state.replay(ScopeKey("CONFIG", scope).to_bytes(), object_value({"compatibilityLevel": level}))
        state.replay(ScopeKey("MODE", scope).to_bytes(), object_value({"mode": level}))
    for subject, expected in (("a", "FULL"), (":.x:b", "NONE"), (":.x:a", "FORWARD")):
        assert (state.level(subject), state.mode(subject)) == (expected, expected)
    state.replay(ScopeKey("CONFIG", ":.x:a").to_bytes(), None)
    state.replay(ScopeKey("MODE", ":.x:a").to_bytes(), None)
    assert (state.level(":.x:a"), state.mode(":.x:a")) == ("NONE", "NONE")


def test_referrers_end_with_their_deletion() -> None:
    state = State()
    put(state, "a", 1, 1, schema(1))
    put(state, "b", 1, 2, Content("AVRO", '"b"', (Reference("a", "a", 1),)))
    assert [one.subject for one in state.referrers("a", 1)] == ["b"]
    delete_subject(state, "b", 1)
    assert state.referrers("a", 1) == []
    remove(state, "b", 1)
    assert state.referrers("a", 1) == []


def test_malformed_records_are_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    state = State()
    put(state, "a", 1, 1, schema(1))
    for key, value in (
        (None, b"x"),
        (b"x", b"x"),
        (SchemaKey("a", 2).to_bytes(), b"{}"),
        (ScopeKey("CONFIG", None).to_bytes(), b"["),
        (ScopeKey("DELETE_SUBJECT", "a").to_bytes(), b"{}"),
        (b'{"keytype":"NOOP","magic":0}', None),
    ):
        state.replay(key, value)
    assert (numbers(state, "a"), state.level("a")) == ([1], "BACKWARD")
    assert len(caplog.records) == 5


def test_clear_subject_removes_what_is_deleted() -> None:
    state = State()
    put(state, "a", 1, 1, schema(1), deleted=True)
    put(state, "a", 2, 2, schema(2))
    state.replay(ScopeKey("CLEAR_SUBJECT", "a").to_bytes(), object_value({"subject": "a"}))
    assert numbers(state, "a", with_deleted=True) == [2]
