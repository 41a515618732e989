"""What the image installs is pinned and hashed, fits pyproject.toml, and is named by the bill of materials."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import Any

import pytest
from kit.dockerfile import TOP, read_dockerfile
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT: dict[str, Any] = tomllib.loads((TOP / "pyproject.toml").read_text())
PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?P<rest>.*)")


def pins(name: str) -> dict[str, str]:
    """Version by name; each entry has to have hashes."""
    text = (TOP / "packaging/image" / name).read_text()
    found: dict[str, str] = {}
    for entry in re.sub(r"\\\n\s*", " ", text).splitlines():
        match = PINNED.fullmatch(entry)
        assert match is not None, entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", match["rest"]), entry
        found[canonicalize_name(match["name"])] = match["version"]
    return found


def assert_pinned(needed: list[str], pinned: dict[str, str]) -> None:
    for one in map(Requirement, needed):
        version = pinned[canonicalize_name(one.name)]
        assert one.specifier.contains(version), f"{one} is pinned to {version}: scripts/lock-image"


def test_each_dependency_is_pinned_to_a_version_that_fits() -> None:
    project = PROJECT["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["security"]]
    assert_pinned(needed, pins("requirements.txt"))
    assert_pinned(PROJECT["build-system"]["requires"], pins("build-requirements.txt"))


def test_the_image_installs_nothing_that_is_not_pinned() -> None:
    steps = [one.arguments for one in read_dockerfile() if one.name == "RUN"]
    installs = [step for text in steps for step in text.split(" && ") if "pip install" in step]
    assert installs
    for step in installs:
        assert "--no-build-isolation" in step, "a build would fetch what nobody has pinned"
        assert "--require-hashes" in step or "--no-deps" in step, step


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    loader = SourceFileLoader("audit_dependencies", str(TOP / "scripts/audit-dependencies"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def dependency(**more: object) -> dict[str, object]:
    return {"name": "click", "version": "8.1", **more}


FLAW = {"id": "CVE-2026-1", "fix_versions": ["8.2"]}


@pytest.mark.parametrize(
    ("dependencies", "status", "words"),
    [
        ([dependency(vulns=[])], 0, "nothing is known against 1 packages"),
        ([dependency(vulns=[FLAW])], 1, "click 8.1: CVE-2026-1, fixed in 8.2"),
        ([dependency(vulns=[]), {"name": "x", "skip_reason": "not found"}], 2, "knows nothing of 1 of 2: x"),
    ],
)
def test_an_audit_says_what_it_knows_and_what_it_does_not(
    audit: ModuleType, dependencies: list[object], status: int, words: str
) -> None:
    found, lines = audit.verdict(json.dumps({"dependencies": dependencies}), "")
    assert found == status
    assert words in "\n".join(lines)


@pytest.mark.parametrize("errors", ["Traceback\nConnectionError: no route to host", "No module named pip_audit", ""])
def test_a_database_that_cannot_be_asked_is_no_good_news(audit: ModuleType, errors: str) -> None:
    status, lines = audit.verdict("", errors)
    assert status == 2
    assert lines[0].startswith("the database could not be asked")
