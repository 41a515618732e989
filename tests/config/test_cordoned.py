"""`cordoned.log.dirs`: names of `log.dirs`, or `*` alone; a relative name is the same as its absolute path."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.cordoned import is_cordoned
from ottla.config.errors import ConfigError


@pytest.mark.parametrize("value", ["", "/a", "/b,/a", "*", "/a/"])
def test_directories_of_log_dirs_can_be_cordoned(value: str) -> None:
    config = BrokerConfig.of({"log.dirs": "/a,/b", "cordoned.log.dirs": value})
    assert is_cordoned(Path("/a"), config.cordoned_log_dirs) == (value != "")


@pytest.mark.parametrize("value", ["/c", "/a,/c", "*,/a", "a"])
def test_other_names_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs"):
        BrokerConfig.of({"log.dirs": "/a,/b", "cordoned.log.dirs": value})


def test_a_relative_directory_can_be_named_by_its_absolute_path_too() -> None:
    """In Kafka 4.3 a relative name is accepted and has no effect (KAFKA-20901)."""
    absolute = str(Path("some").absolute())
    for name in ("some", absolute):
        config = BrokerConfig.of({"log.dirs": "some", "cordoned.log.dirs": name})
        assert is_cordoned(Path(absolute), config.cordoned_log_dirs)


def test_one_directory_is_cordoned_where_log_dir_names_it() -> None:
    config = BrokerConfig.of({"log.dir": "/one", "cordoned.log.dirs": "/one"})
    assert is_cordoned(Path("/one"), config.cordoned_log_dirs)
