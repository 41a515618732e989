"""docs/wire-oracles.md says who vouches for each version, and nothing is without a witness."""

from __future__ import annotations

import pytest
from kit.golden import ALL_MESSAGES
from kit.wire_oracles import PAGE, oracles, page

from ottla.protocol.message import Message


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run scripts/wire-oracles"


@pytest.mark.parametrize("cls", ALL_MESSAGES)
def test_every_version_has_a_witness(cls: type[Message]) -> None:
    assert all(oracles(cls, version) for version in cls.message_versions.versions())
