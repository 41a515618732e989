"""What a life under hostile input is there to notice, it notices."""

from __future__ import annotations

import random

import pytest
from kit.fuzz import logins
from kit.fuzz.life import Life
from kit.fuzz.watch import Finding

from ottla.broker.requests import authenticating
from ottla.broker.runtime.disk import GroupSyncer, QueuedSyncer
from ottla.broker.runtime.threads import NoThread
from ottla.broker.security.sasl import plain


def test_who_waits_for_a_sync_that_finds_no_thread_is_answered() -> None:
    with Life() as life:
        life.live([{"threads": False}, {"threads": True}, {"threads": False}])


def test_a_sync_that_strands_who_waits_where_there_is_no_thread_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(self: QueuedSyncer, queue: object, sync_round: object) -> None:
        try:
            self._hand_over(queue, sync_round)  # type: ignore[arg-type]
        except NoThread:
            return

    monkeypatch.setattr(GroupSyncer, "_submit", submit)
    with Life() as life, pytest.raises(Finding, match="the witness got no answer to OffsetCommitRequest"):
        life.step({"threads": False})


def logins_find(promise: str) -> None:
    """Some life of hostile logins says that this is broken."""
    said = []
    for seed in range(40):
        try:
            with Life(with_kio=False) as life:
                logins.live(random.Random(seed), life)
        except Finding as finding:
            said.append(str(finding))
            if promise in said[-1]:
                return
    raise AssertionError(f"not found in 40 lives: {promise}; but {said}")


def test_a_request_that_is_served_before_a_login_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticating, "_BEFORE", range(100))
    logins_find("is answered before a login")


def test_a_login_without_its_password_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain.PlainUsers, "is_right", lambda *_: True)
    logins_find("has logged in")
