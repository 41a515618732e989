"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import os
import random
import signal
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from kit.broker import BrokerProcess
from kit.seeds import replay_command, run_seed, seed_of

RUN = uuid.uuid4().hex[:8]  # a peer that outlives the run has the topics of earlier runs


# Hypothesis times examples and their making; a busy machine is no failure. Its choices come from the seed of the run
# (kit/seeds.py), in CI too, where its own profile would take another for each test.
settings.register_profile(
    "seeded", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False, print_blob=True
)
settings.load_profile("seeded")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hand the seed of the run to Hypothesis, and take SIGINT as a terminal would have it: a shell starts what runs in
    its background (`nohup scripts/test &`) with SIGINT ignored, every process inherits that, and the tests of Ctrl-C
    would wait for an end that never comes.
    """
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(run_seed())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"seed of this run: TEST_SEED={run_seed()}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    random.seed(seed_of(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Every failure says how to run it again."""
    report = yield
    if report.failed:
        report.sections.append(("To run it again", replay_command(report.nodeid)))
    return report


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a worker that need none of their own: use topic names of your own.

    `OTTLA_TEST_BOOTSTRAP=127.0.0.1:9092` puts another broker in its place, Apache Kafka for one: it judges the tests.
    It must not delete old records meanwhile (kit/broker.py says why); `scripts/interop/apache-kafka` starts one so.
    """
    peer = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if peer:
        other = BrokerProcess(tmp_path_factory.mktemp("unused"))
        other.port = int(peer.rpartition(":")[2])
        yield other
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker for this test alone, to be restarted, killed or filled."""
    with BrokerProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.nodeid.split("/")[-1])
    return f"{name[-200:].strip('-')}-{RUN}"
