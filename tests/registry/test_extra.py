"""Without the packages of the extra `registry`: Avro works, and a line says what to install for the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules.update(dict.fromkeys({0}))\n"
PROGRAM = """
from ottla.registry.errors import InvalidSchema
from ottla.registry.schemas import parse_schema
try:
    print(parse_schema({kind!r}, {text!r}, ()).text)
except InvalidSchema as refused:
    print(refused)
"""
PACKAGES = ("jsonschema", "google", "google.protobuf", "proto_schema_parser", "antlr4")


@pytest.mark.parametrize(
    ("kind", "text", "printed"),
    [
        ("AVRO", "int", '"int"'),
        ("JSON", "{}", 'JSON Schema needs another package where the registry runs: pip install "ottla[registry]"'),
        ("PROTOBUF", "x", 'Protobuf needs other packages where the registry runs: pip install "ottla[registry]"'),
    ],
)
def test_a_type_without_its_packages(kind: str, text: str, printed: str) -> None:
    program = WITHOUT.format(PACKAGES) + PROGRAM.format(kind=kind, text=text)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == printed


def test_the_command_says_it_when_it_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    import ottla.cli.registry as command

    monkeypatch.setattr(command, "find_spec", lambda name: None)
    monkeypatch.setattr(command.asyncio, "run", lambda serving: serving.close())
    result = CliRunner().invoke(command.registry, [])
    assert (result.exit_code, result.output) == (
        0,
        'ottla: Avro only: pip install "ottla[registry]" adds JSON Schema and Protobuf\n',
    )
