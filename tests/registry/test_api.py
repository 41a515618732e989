"""The API over a real broker: what Confluent's clients ask for, with its answers and error codes."""

from __future__ import annotations

import json

import pytest
from kit.registry_api import RegistryApi, body_of, record

from ottla.testing import EmbeddedBroker

INT, STRING, LONG = '"int"', '"string"', '"long"'
NARROW = record("a:int")
WIDER = record("a:int", "b:int=1")


def test_a_schema_has_one_id_in_all_subjects(api: RegistryApi) -> None:
    assert [api.register("a", INT), api.register("a", '{"type": "int"}'), api.register("b", INT)] == [1, 1, 1]
    assert [api.register("b", LONG), api.register("c", record())] == [2, 3]
    assert api.get("/subjects") == ["a", "b", "c"]
    assert api.get("/subjects/b/versions") == [1, 2]
    assert api.get("/schemas/ids/1") == {"schema": INT}
    assert api.get("/schemas/ids/1?fetchMaxId=true") == {"schema": INT, "maxId": 3}
    assert api.get("/schemas/ids/1/schema") == "int"
    assert api.get("/schemas/ids/1/subjects") == ["a", "b"]
    assert api.get("/schemas/ids/1/versions") == [{"subject": "a", "version": 1}, {"subject": "b", "version": 1}]
    assert api.get("/subjects/b/versions/latest") == {"subject": "b", "version": 2, "id": 2, "schema": LONG}
    assert api.get("/subjects/b/versions/-1/schema") == "long"
    assert api.do("POST", "/subjects/b", body_of(INT)) == {"subject": "b", "version": 1, "id": 1, "schema": INT}
    assert [one["id"] for one in api.get("/schemas")] == [1, 1, 2, 3]
    assert [one["id"] for one in api.get("/schemas?latestOnly=true&subjectPrefix=b")] == [2]


def test_what_is_not_there(api: RegistryApi) -> None:
    api.register("a", INT)
    assert api.refused("GET", "/subjects/b/versions") == (404, 40401, "Subject 'b' not found.")
    assert api.refused("POST", "/subjects/b", body_of(INT)) == (404, 40401, "Subject 'b' not found.")
    assert api.refused("DELETE", "/subjects/b") == (404, 40401, "Subject 'b' not found.")
    assert api.refused("GET", "/subjects/a/versions/2") == (404, 40402, "Version 2 not found.")
    assert api.refused("GET", "/schemas/ids/7") == (404, 40403, "Schema 7 not found")
    assert api.refused("POST", "/subjects/a", body_of(STRING)) == (404, 40403, "Schema not found")
    assert api.refused("GET", "/nothing")[:2] == (404, 404)
    assert api.refused("PUT", "/subjects/a")[:2] == (405, 405)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/subjects/a/versions", {"schema": '{"type":"nope"}'}, 422, 42201),
        ("POST", "/subjects/a/versions", {"schema": ""}, 422, 42201),
        ("POST", "/subjects/a/versions", {}, 422, 42201),
        ("POST", "/subjects/a/versions", {"schema": INT, "schemaType": "XML"}, 422, 42201),
        ("POST", "/subjects/a/versions", {"schema": '"\ud800"'}, 422, 42201),
        ("POST", "/subjects/a/versions", {"schema": INT, "references": [{"name": "x"}]}, 422, 422),
        ("POST", "/subjects/a/versions", b"{", 400, 400),
        ("POST", "/subjects/a/versions", b"[" * 100_000, 400, 400),
        ("POST", "/subjects/a/versions", [], 422, 422),
        ("POST", "/subjects/a/versions", {"schema": INT, "id": 3}, 422, 42205),
        ("POST", "/subjects/__GLOBAL/versions", {"schema": INT}, 422, 42208),
        ("POST", "/subjects/a%0ab/versions", {"schema": INT}, 422, 42208),
        ("GET", "/subjects/a/versions/0", None, 422, 42202),
        ("GET", "/subjects/a/versions/2147483648", None, 422, 42202),
        ("PUT", "/config", {"compatibility": "SOME"}, 422, 42203),
        ("PUT", "/config/a", {"compatibility": "FULL", "compatibilityGroup": "x"}, 422, 422),
        ("PUT", "/mode", {"mode": "SOME"}, 422, 42204),
    ],
)
def test_wrong_requests_have_confluents_codes(
    api: RegistryApi, method: str, path: str, body: object, status: int, code: int
) -> None:
    found_status, found_code, message = api.refused(method, path, body)
    assert (found_status, found_code, "\n" in message) == (status, code, False)


def test_an_incompatible_schema_is_refused(api: RegistryApi) -> None:
    api.register("a", NARROW)
    status, code, message = api.refused("POST", "/subjects/a/versions", body_of(record("a:string")))
    assert (status, code) == (409, 409)
    assert message.startswith(
        'Schema being registered is incompatible with an earlier schema for subject "a", details: '
        "[{errorType:'TYPE_MISMATCH', description:'int cannot be read as string', path:'/fields/0/type'}"
    )
    assert api.register("a", WIDER) == 2


@pytest.mark.parametrize(
    ("level", "compatible"),
    [
        ("NONE", "YYYY"),
        ("BACKWARD", "YYNY"),
        ("FORWARD", "YYYN"),
        ("FULL", "YYNN"),
        ("BACKWARD_TRANSITIVE", "YNNY"),
        ("FORWARD_TRANSITIVE", "YNYN"),
        ("FULL_TRANSITIVE", "YNNN"),
    ],
)
def test_levels(api: RegistryApi, level: str, compatible: str) -> None:
    """Candidates: an optional field is added; `b` comes back with another type; a required field; `a` is removed."""
    api.do("PUT", "/config/a", {"compatibility": "NONE"})
    api.register("a", record("a:int", "b:int=0"))
    api.register("a", record("a:int"))
    api.do("PUT", "/config/a", {"compatibility": level})
    candidates = (
        record("a:int", "c:int=1"),
        record("a:int", 'b:string=""'),
        record("a:int", "c:int"),
        record("b:int=1"),
    )
    path = "/compatibility/subjects/a/versions"
    answers = [api.do("POST", path, body_of(one))["is_compatible"] for one in candidates]
    assert "".join("NY"[one] for one in answers) == compatible


def test_messages_are_given_if_they_are_asked_for(api: RegistryApi) -> None:
    api.register("a", NARROW)
    path = "/compatibility/subjects/a/versions/latest"
    assert api.do("POST", path, body_of(record("b:int"))) == {"is_compatible": False}
    answer = api.do("POST", f"{path}?verbose=true", body_of(record("b:int")))
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in answer["messages"][0]
    assert api.do("POST", f"{path}?verbose=true", body_of(WIDER)) == {"is_compatible": True, "messages": []}
    assert api.do("POST", "/compatibility/subjects/new/versions", body_of(INT)) == {"is_compatible": True}
    assert api.refused("POST", "/compatibility/subjects/new/versions/1", body_of(INT))[1] == 40401
    assert api.refused("POST", "/compatibility/subjects/a/versions/9", body_of(INT))[1] == 40402


def test_deletion_is_first_soft_and_then_permanent(api: RegistryApi) -> None:
    for schema in (NARROW, WIDER):
        api.register("a", schema)
    assert api.refused("DELETE", "/subjects/a?permanent=true")[1] == 40405
    assert api.refused("DELETE", "/subjects/a/versions/1?permanent=true")[1] == 40407
    assert api.do("DELETE", "/subjects/a/versions/1") == 1
    assert api.refused("DELETE", "/subjects/a/versions/1")[1] == 40406
    assert api.refused("GET", "/subjects/a/versions/1")[1] == 40402
    assert api.get("/subjects/a/versions/1?deleted=true")["id"] == 1
    assert api.get("/subjects/a/versions") == [2]
    assert api.get("/subjects/a/versions?deletedOnly=true") == [1]
    assert api.do("DELETE", "/subjects/a") == [2]
    assert api.refused("DELETE", "/subjects/a")[1] == 40404
    assert (api.get("/subjects"), api.get("/subjects?deleted=true")) == ([], ["a"])
    assert api.get("/schemas/ids/1")["schema"] == json.dumps(NARROW, separators=(",", ":"))
    assert api.do("DELETE", "/subjects/a?permanent=true") == [1, 2]
    assert api.refused("GET", "/schemas/ids/1")[1] == 40403
    assert api.register("a", INT) == 3
    assert api.get("/subjects/a/versions") == [1]


def test_a_deleted_schema_comes_back_with_its_id(api: RegistryApi) -> None:
    api.register("a", INT)
    api.do("DELETE", "/subjects/a")
    assert api.register("a", INT) == 1
    assert api.get("/subjects/a/versions") == [2]


def test_what_is_referred_to_cannot_be_deleted(api: RegistryApi) -> None:
    api.register("address", record("street:string", name="Address"))
    reference = {"name": "Address", "subject": "address", "version": 1}
    customer = record({"name": "home", "type": "Address"}, name="Customer")
    assert api.refused("POST", "/subjects/customer/versions", body_of(customer))[1] == 42201
    missing = {**reference, "version": 7}
    refused = api.refused("POST", "/subjects/customer/versions", body_of(customer, references=[missing]))
    assert refused[1:] == (42201, 'Invalid schema: No schema reference found for subject "address" and version 7')
    assert api.register("customer", customer, references=[reference]) == 2
    assert api.get("/schemas/ids/2")["references"] == [reference]
    assert api.get("/subjects/address/versions/1/referencedby") == [2]
    assert api.refused("DELETE", "/subjects/address")[1] == 42206
    assert api.refused("DELETE", "/subjects/address/versions/1")[1] == 42206
    api.do("DELETE", "/subjects/customer")
    assert api.do("DELETE", "/subjects/address") == [1]


def test_references_of_references_are_known(api: RegistryApi) -> None:
    api.register("a", record(name="A"))
    api.register(
        "b", record({"name": "a", "type": "A"}, name="B"), references=[{"name": "A", "subject": "a", "version": -1}]
    )
    both = record({"name": "b", "type": "B"}, {"name": "a", "type": "A"}, name="C")
    assert api.register("c", both, references=[{"name": "B", "subject": "b", "version": 1}]) == 3


def test_settings_of_a_subject_and_of_all(api: RegistryApi) -> None:
    assert api.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert api.do("PUT", "/config", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert api.refused("GET", "/config/a")[1] == 40408
    assert api.get("/config/a?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    assert api.do("PUT", "/config/a", {"compatibility": "NONE", "normalize": True}) == {
        "compatibility": "NONE",
        "normalize": True,
    }
    assert api.get("/config/a") == {"compatibilityLevel": "NONE", "normalize": True}
    assert api.register("a", '{"type":"int","x":1,"b":2}') == api.register("a", '{"type":"int","b":2,"x":1}')
    assert api.do("DELETE", "/config/a") == {"compatibilityLevel": "NONE", "normalize": True}
    assert api.refused("DELETE", "/config/a")[1] == 40408
    assert api.do("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert api.get("/config") == {"compatibilityLevel": "BACKWARD"}


def test_the_settings_of_a_subject_end_with_it(api: RegistryApi) -> None:
    api.register("a", INT)
    api.do("PUT", "/config/a", {"compatibility": "NONE"})
    api.do("DELETE", "/subjects/a/versions/1")
    assert api.refused("GET", "/config/a")[1] == 40408


def test_modes(api: RegistryApi) -> None:
    api.register("a", INT)
    assert api.get("/mode") == {"mode": "READWRITE"}
    assert api.do("PUT", "/mode/a", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert api.register("a", INT) == 1
    assert api.refused("POST", "/subjects/a/versions", body_of(LONG))[:2] == (422, 42205)
    assert api.refused("DELETE", "/subjects/a")[1] == 42205
    assert api.do("DELETE", "/mode/a") == {"mode": "READONLY"}
    assert api.refused("GET", "/mode/a")[1] == 40409
    assert api.get("/mode/a?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert api.refused("PUT", "/mode", {"mode": "IMPORT"})[1:] == (42205, "Cannot import since found existing subjects")


def test_an_import_brings_ids_and_versions(api: RegistryApi) -> None:
    assert api.refused("POST", "/subjects/a/versions", body_of(INT, id=40, version=4))[1] == 42205
    api.do("PUT", "/mode/a", {"mode": "IMPORT"})
    assert api.refused("POST", "/subjects/a/versions", body_of(INT))[1] == 42205
    assert api.register("a", INT, id=40, version=4) == 40
    assert api.register("a", INT, id=40, version=4) == 40
    assert api.refused("POST", "/subjects/a/versions", body_of(STRING, id=40, version=5))[1] == 42205
    assert api.refused("POST", "/subjects/a/versions", body_of(STRING, id=41, version=4))[1] == 42205
    assert api.get("/subjects/a/versions") == [4]
    assert api.register("b", STRING) == 41


def test_contexts_are_separate(api: RegistryApi) -> None:
    assert [api.register("a", INT), api.register("%3A.x%3Aa", STRING), api.register(":.x:b", LONG)] == [1, 1, 2]
    assert api.register(":.:a", INT) == 1
    assert api.get("/contexts") == [".", ".x"]
    assert api.get("/subjects?subjectPrefix=:.x:") == [":.x:a", ":.x:b"]
    assert api.get("/contexts/:.x:/subjects/a/versions/1")["schema"] == STRING
    assert api.get("/contexts/.x/schemas/ids/2")["schema"] == LONG
    assert api.get("/schemas/ids/1?subject=:.x:a")["schema"] == STRING
    assert api.get("/schemas/ids/1")["schema"] == INT


def test_lists_have_pages(api: RegistryApi) -> None:
    for name in "abcd":
        api.register(name, INT)
    assert api.get("/subjects?offset=1&limit=2") == ["b", "c"]
    assert api.get("/subjects?limit=-1") == ["a", "b", "c", "d"]
    assert api.get("/schemas/ids/1/subjects?offset=3") == ["d"]


def test_metadata_and_rules_belong_to_a_schema(api: RegistryApi) -> None:
    more = {"metadata": {"properties": {"owner": "kitchen"}}, "ruleSet": {"domainRules": []}}
    assert [api.register("a", INT), api.register("a", INT, **more)] == [1, 2]
    assert api.get("/subjects/a/versions/2") == {"subject": "a", "version": 2, "id": 2, "schema": INT, **more}


def test_bodies_need_a_type_that_pages_cannot_send(api: RegistryApi) -> None:
    for kind, status in (
        ("application/json", 200),
        ("application/vnd.schemaregistry+json; charset=utf-8", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ):
        assert api.ask("POST", "/subjects/a/versions", body_of(INT), {"Content-Type": kind})[0] == status


def test_pages_of_other_sites_are_refused(api: RegistryApi) -> None:
    for headers, status in (
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": api.url}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "registry:8081"}, 200),
    ):
        assert api.ask("GET", "/subjects", headers=headers)[0] == status


def test_a_schema_that_is_too_large_for_a_record(broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, configs={"cleanup.policy": "compact", "max.message.bytes": "2000"})
    with broker.schema_registry(topic) as registry:
        api = RegistryApi(registry.url)
        status, code, message = api.refused("POST", "/subjects/a/versions", body_of({"type": "int", "x": "y" * 3000}))
        assert (status, code, "too large" in message) == (422, 42201, True)
        assert api.register("a", INT) == 1


def test_a_subject_keeps_its_type_of_schema(api: RegistryApi) -> None:
    api.register("a", STRING)
    status, code, message = api.refused("POST", "/subjects/a/versions", body_of({}, schemaType="JSON"))
    assert (status, code, "the earlier schema is of type AVRO" in message) == (409, 409, True)
    assert api.register("b", {"type": "object"}, schemaType="json") == 2
    assert api.get("/schemas/ids/2") == {"schemaType": "JSON", "schema": '{"type":"object"}'}
    reference = {"name": "b", "subject": "b", "version": 1}
    assert api.refused("POST", "/subjects/c/versions", body_of(STRING, references=[reference]))[1] == 42201
