"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from kit.broker import IMPORTS, BrokerProcess
from kit.examples import DEFAULT, QUICK_VARIABLE, examples
from kit.forks import Forks
from kit.kinds import is_left_out, kind_of, what_is_left_out
from kit.seeds import replay_command, run_seed, seed_of

RUN = uuid.uuid4().hex[:8]  # a peer that outlives the run has the topics of earlier runs
YOUNG_OBJECTS = 50_000
"""How many objects may come before the collector of garbage runs. With Python's 700 it takes a quarter of the time of a
test that starts one broker core after another.
"""
QUICK_GROUPS = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.min.session.timeout.ms": "1000",
    "group.share.heartbeat.interval.ms": "300",
}
"""Members learn of a new assignment by a heartbeat, which Kafka has every 5 s."""


# Hypothesis times examples and their making; a busy machine is no failure. Its choices come from the seed of the run
# (kit/seeds.py), in CI too, where its own profile would take another for each test.
settings.register_profile(
    "seeded",
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("seeded")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the kinds of tests that take long (kit/kinds.py)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A quick run does not even import what it leaves out. A file that is named on the command line runs."""
    return True if config.option.quick and is_left_out(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kind = kind_of(item.path)
        if kind is not None:
            item.add_marker(kind)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out units of work, those with the most tests first; the many single tests keep all workers busy to the end.

    What both are is pytest-xdist's.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from kit.handing_out import UnitScheduling

    return UnitScheduling(config, log)


def pytest_collection_finish() -> None:
    """What the collection has made stays: the collector of garbage need not go through it again and again, which took
    a sixth of the processor time of tests that make and drop many objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.quick:
        terminalreporter.write_line(what_is_left_out())


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set up Hypothesis, SIGINT, and that brokers are forked.

    A shell starts what runs in its background (`nohup scripts/test &`) with SIGINT ignored, and every process inherits
    that: the tests of Ctrl-C would wait for an end that never comes. So it is taken as a terminal would have it.
    """
    if config.option.quick:
        os.environ[QUICK_VARIABLE] = "1"
        settings.register_profile("quick", settings(max_examples=examples(DEFAULT)))
        settings.load_profile("quick")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(run_seed())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    BrokerProcess.all_forks = Forks(*IMPORTS)


def pytest_report_header() -> str:
    return f"seed of this run: TEST_SEED={run_seed()}"


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops on which a test runs: asyncio's, and the broker's own where it is marked with `both_loops`."""
    if item.get_closest_marker("both_loops") is None:
        return {"asyncio": asyncio.new_event_loop}
    import uvloop

    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    random.seed(seed_of(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Every failure says how to run it again."""
    report = yield
    if report.failed:
        report.sections.append(("To run it again", replay_command(item.nodeid)))
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
    with BrokerProcess(tmp_path_factory.mktemp("broker"), QUICK_GROUPS) as running:
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
