"""The pytest plugin: a broker for each test, or one for all of them, and what was in it when a test has failed.

    def test_order_is_sent(ottla_broker):
        send_order("tea", ottla_broker.bootstrap_servers)
        (record,) = ottla_broker.wait_for_records("orders")
        assert record.value == b"tea"

pytest finds it by its entry point when Ottla is installed. It imports nothing of Ottla until a test uses a fixture.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from ottla.testing.embedded_broker import EmbeddedBroker

_BROKERS = pytest.StashKey[list["EmbeddedBroker"]]()
"""The brokers of a test."""


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Let pytest import Ottla's modules as they are.

    It rewrites the `assert` statements of all packages of a distribution that has a plugin, and compiles each module
    again for that: seconds for 500 modules, in each new environment of a CI. It has no public way to say that these
    packages have no tests' assertions, so this is left out if a release of pytest names the set differently.
    """
    marked: set[str] = getattr(early_config.pluginmanager.rewrite_hook, "_must_rewrite", set())
    marked -= {"ottla", "pyspark_ottla"}


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", "ottla_config(keys): keys of server.properties, as a mapping, for the `ottla_broker` of this test"
    )


@pytest.fixture(scope="session")
def ottla_config() -> dict[str, object]:
    """Keys of `server.properties` for both brokers: override this fixture, with the same scope, to set some."""
    return {}


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest, ottla_config: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A new, empty broker for this test (`ottla.testing.EmbeddedBroker`). It starts in some hundredths of a second."""
    keys = dict(ottla_config)
    for marker in reversed(list(request.node.iter_markers("ottla_config"))):
        keys |= _keys_of(marker)
    with _running(keys) as broker:
        _note(request.node, broker)
        yield broker


@pytest.fixture(scope="session")
def _ottla_shared(ottla_config: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    with _running(ottla_config) as broker:
        yield broker


@contextmanager
def _running(keys: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A broker with these keys. One that cannot start is one line, without the frames of a start."""
    from ottla.broker.metadata.image import MetadataError
    from ottla.broker.net.listening import StartError
    from ottla.config.errors import ConfigError
    from ottla.storage.errors import StorageError
    from ottla.testing import EmbeddedBroker

    try:
        broker = EmbeddedBroker(keys).start()
    except ConfigError as error:  # its origin is an option of a command
        reason: object = ConfigError(error.key, error.value, error.reason)
    except (StartError, StorageError, MetadataError) as error:
        reason = error
    else:
        with broker:
            yield broker
        return
    pytest.fail(f"the broker of this test cannot start: {reason}", pytrace=False)


@pytest.fixture
def ottla_session_broker(request: pytest.FixtureRequest, _ottla_shared: EmbeddedBroker) -> EmbeddedBroker:
    """One broker for all tests of the session (with pytest-xdist: of the worker). Topics and groups stay; let each test
    use its own (`create_topic()` makes a name). Faults of a test that has ended are removed.
    """
    _ottla_shared.faults.clear()
    _note(request.node, _ottla_shared)
    return _ottla_shared


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what is in the test's brokers to the report of a failure."""
    report = yield
    if report.failed and call.when == "call":
        for broker in item.stash.get(_BROKERS, []):
            from ottla.testing.report import describe

            report.sections.append(("Ottla", describe(broker)))
    return report


def _note(item: pytest.Item, broker: EmbeddedBroker) -> None:
    item.stash.setdefault(_BROKERS, []).append(broker)


def _keys_of(marker: pytest.Mark) -> dict[str, Any]:
    if len(marker.args) != 1 or marker.kwargs or not hasattr(marker.args[0], "keys"):
        example = '@pytest.mark.ottla_config({"num.partitions": 3})'
        pytest.fail(f"the marker ottla_config takes one mapping: {example}", pytrace=False)
    return dict(marker.args[0])
