"""A key either has an effect or says that it has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ottla
from ottla.config.broker import BrokerConfig
from ottla.config.options import Option
from ottla.config.topic import TopicConfig

PACKAGE = Path(ottla.__file__).parent
READ = {
    name
    for path in PACKAGE.rglob("*.py")
    if path.parent.name != "config" or path.name in ("broker.py", "logins.py")
    for name in re.findall(r"\.([a-z][a-z0-9_]*)", path.read_text())
}
"""Attributes that some code outside the declarations reads."""


def is_read(option: Option) -> bool:
    heirs = [one.attribute for one in TopicConfig.by_key.values() if one.inherits is option]
    finer = [one.attribute for one in BrokerConfig.by_key.values() if option in one.chain()[1:]]
    return any(attribute in READ for attribute in (option.attribute, *heirs, *finer)) or any(
        is_read(one) for one in BrokerConfig.by_key.values() if option in one.chain()[1:]
    )


@pytest.mark.parametrize("option", BrokerConfig.by_key.values(), ids=lambda option: option.key)
def test_a_broker_key_is_read_or_says_why_not(option: Option) -> None:
    assert option.inert or is_read(option)


@pytest.mark.parametrize("option", TopicConfig.by_key.values(), ids=lambda option: option.key)
def test_a_topic_key_is_read_or_says_why_not(option: Option) -> None:
    assert option.inert or option.attribute in READ
