"""The signals that stop a broker's process, and the one that must not when somebody said so."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from kit.broker import STOP_TIMEOUT_S, BrokerProcess
from kit.command import run
from kit.wire import Wire

from ottla.broker.runtime.repeated_lines import AT_ONCE

CLEAN = ".kafka_cleanshutdown"
NOHUP = ("/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh")
NOT_NOHUP = ("env", "--default-signal=HUP")
"""What undoes it: whoever starts the tests may have said it of them all, and a process hands it on to its own."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_ends_programs_stops_it_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    """SIGHUP is what a terminal sends when its window is closed; a JVM shuts down on it, too."""
    with BrokerProcess(tmp_path / "data", prefix=NOT_NOHUP) as broker:
        assert broker.process is not None
        broker.process.send_signal(number)
        assert broker.process.wait(STOP_TIMEOUT_S) == 0
        assert (broker.directory / CLEAN).exists()


def test_nohup_keeps_it_serving(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", prefix=NOHUP) as broker:
        assert broker.process is not None
        broker.process.send_signal(signal.SIGHUP)
        assert run("ping", "-b", broker.bootstrap).status == 0
        assert "SIGHUP" not in broker.output
        assert not (broker.directory / CLEAN).exists()


def test_a_client_that_comes_again_and_again_does_not_fill_the_log(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        for _ in range(2 * AT_ONCE):
            with Wire(broker.port) as wire:
                wire.send(b"GET / HTTP/1.1\r\n\r\n")
                assert wire.is_closed_by_peer()
        broker.stop()
        assert AT_ONCE <= broker.output.count("this is HTTP") < 2 * AT_ONCE
