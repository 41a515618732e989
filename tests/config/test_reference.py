from __future__ import annotations

from pathlib import Path

import ottla.config
from ottla.config.broker import BrokerConfig
from ottla.config.reference import render_reference

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_the_declarations_say() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == render_reference(), "run: python -m ottla.config.reference > docs/configuration.md"


def test_the_example_file_is_shipped_works_and_shows_the_defaults(tmp_path: Path) -> None:
    example = Path(ottla.config.__file__).with_name("server.properties")
    assert BrokerConfig.load(example).warnings == []
    uncommented = tmp_path / "server.properties"
    lines = [line.removeprefix("#") for line in example.read_text().splitlines() if not line.startswith(("# ", "##"))]
    uncommented.write_text("\n".join(line for line in lines if not line.startswith("listener.security")))
    every_line = BrokerConfig.load(uncommented)
    assert every_line.warnings == []
    assert len(every_line.values) > 15
    for option in BrokerConfig.by_key.values():
        assert getattr(every_line, option.attribute) == getattr(BrokerConfig.of(), option.attribute), option.key
