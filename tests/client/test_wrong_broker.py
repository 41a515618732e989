"""The client names the broker that it expects at an address (KIP-1242), and begins again where another one is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from kit.broker import BrokerProcess
from kit.fake_broker import FakeCluster

from ottla.client import Admin, Producer
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.errors import ErrorCode

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
API_VERSIONS = ApiVersionsRequest.message_key


@pytest.fixture
async def cluster():
    async with FakeCluster(brokers=2) as running:
        running.add_topic("t", 1)
        yield running


def places(cluster: FakeCluster) -> list[tuple[int, int, str | None, int]]:
    """Of each connection: the broker that was asked, the version, and the broker that was expected."""
    return [
        (node, version, request.cluster_id, request.node_id)
        for node, request, version in cluster.requests
        if isinstance(request, ApiVersionsRequest)
    ]


async def test_a_broker_is_told_which_one_is_expected_and_a_bootstrap_server_is_not(cluster) -> None:
    async with Producer(cluster.bootstrap, **QUICK) as producer:
        await producer.send_and_wait("t", b"x")
    bootstrap, *brokers = places(cluster)
    assert bootstrap == (0, 3, None, -1)
    assert sorted(brokers) == [(0, 5, "fake", 0), (1, 5, "fake", 1)]


@pytest.mark.parametrize(("newest", "options"), [(4, {}), (5, {"metadata_cluster_check_enable": False})])
async def test_no_broker_is_named_to_older_clusters_or_if_it_is_switched_off(cluster, newest, options) -> None:
    cluster.versions[API_VERSIONS] = (0, newest)
    async with Producer(cluster.bootstrap, **QUICK, **options) as producer:
        await producer.send_and_wait("t", b"x")
    assert {one[1:] for one in places(cluster)} == {(3, None, -1)}


async def test_where_another_broker_is_the_bootstrap_servers_are_asked_again(cluster, caplog) -> None:
    refused = []

    def answer(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        if request.node_id == 1 and len(refused) < 2:
            refused.append(request)
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=[])
        listed = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, (lowest, highest) in cluster.versions.items()
        ]
        return ApiVersionsResponse(api_keys=listed)

    cluster.handlers[ApiVersionsRequest] = answer
    async with Producer(cluster.bootstrap, **QUICK) as producer:
        await producer.send_and_wait("t", b"x")
    assert len(refused) == 2
    warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    address = f"127.0.0.1:{cluster.ports[1]}"
    assert warned.count(f"{address} is not broker 1 of this cluster any more; asking the bootstrap servers") == 2


async def test_a_client_of_a_broker_whose_port_another_cluster_has_now_notices(tmp_path: Path, caplog) -> None:
    first = BrokerProcess(tmp_path / "first")
    with first:
        async with Admin(first.bootstrap, reconnect_backoff_ms=1) as admin:
            before = await admin.describe_cluster()
            await admin.describe_configs([])  # at the broker itself, not only at the bootstrap server
            first.stop()
            second = BrokerProcess(tmp_path / "second")
            second.port = first.port
            with second:
                await admin.create_topic("t")
                after = await admin.describe_cluster()
    assert before.cluster_id != after.cluster_id
    text = f"{first.bootstrap} is not broker 1 of this cluster any more; asking the bootstrap servers"
    assert text in [one.getMessage() for one in caplog.records]
