"""Every API can be refused as a whole, at every version, whatever was asked; ApiVersions alone has no refusal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings
from kit.examples import examples
from kit.wire_values import messages

from ottla.protocol.api import REGISTRY, Api, ApiKey
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, decode, encode


def codes_in(struct: Struct) -> Iterator[int]:
    """Every `error_code` in a response, however deep; those of the top only where the version has them set."""
    for field in struct.fields():
        value = getattr(struct, field.name)
        if field.name == "error_code" and (value or not isinstance(struct, Response)):
            yield value
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Struct):
                yield from codes_in(item)


CASES = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in REGISTRY.values()
    if api.key != ApiKey.API_VERSIONS
    for version in range(api.min_version, api.max_version + 1)
]


@pytest.mark.parametrize(("api", "version"), CASES)
def test_a_refusal_has_its_code_wherever_something_was_asked(api: Api, version: int) -> None:
    @settings(max_examples=examples(5), phases=[Phase.generate])
    @given(request=messages(api.request, version))
    def check(request: Request) -> None:
        if isinstance(request, ProduceRequest):
            request.acks = -1
        answer = api.refused(request, version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
        assert answer is not None
        arrived = decode(api.response, encode(answer, version), version)
        assert set(codes_in(arrived)) <= {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

    check()


def test_what_is_never_answered_has_no_refusal() -> None:
    produce, api_versions = REGISTRY[ApiKey.PRODUCE], REGISTRY[ApiKey.API_VERSIONS]
    unanswered = ProduceRequest(acks=0, timeout_ms=0, topic_data=[])
    assert produce.refused(unanswered, 9, ErrorCode.INVALID_REQUEST, "no") is None
    assert api_versions.refused(ApiVersionsRequest(), 3, ErrorCode.INVALID_REQUEST, "no") is None
