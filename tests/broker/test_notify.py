from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest
from kit.broker import BrokerProcess

from ottla.broker.notify import SOCKET_VARIABLE, notify

TIMEOUT_S = 60.0


@pytest.fixture
def service_manager(tmp_path: Path) -> socket.socket:
    """The other end of a notification socket, as systemd has it."""
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(TIMEOUT_S)
    return manager


def test_a_broker_notifies_systemd_when_clients_may_come_and_when_it_stops(
    tmp_path: Path, service_manager: socket.socket
) -> None:
    environment = {SOCKET_VARIABLE: str(tmp_path / "notify")}
    with service_manager, BrokerProcess(tmp_path / "data", environment=environment) as broker:
        assert service_manager.recv(100) == b"READY=1"
        broker.stop()
        assert service_manager.recv(100) == b"STOPPING=1"


def test_an_abstract_socket_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"ottla-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(TIMEOUT_S)
        monkeypatch.setenv(SOCKET_VARIABLE, f"@{name}")
        notify("READY=1")
        assert manager.recv(100) == b"READY=1"


def test_nobody_listening_is_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    notify("READY=1")
    monkeypatch.setenv(SOCKET_VARIABLE, "/nothing/there")
    with caplog.at_level(logging.WARNING, logger="ottla.server"):
        notify("READY=1")
