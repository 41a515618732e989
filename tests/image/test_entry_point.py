"""The entry point's decisions, with a program in place of `ottla` that says how it was called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from kit.dockerfile import TOP

TIMEOUT_S = 60.0
OTHER = 54321


class Container:
    """The image's paths below a directory of the test's own."""

    def __init__(self, top: Path) -> None:
        self.top = top
        for directory in ("bin", "etc/ottla", "usr/local/share/ottla", "mnt/shared/config", "var/lib/ottla"):
            (top / directory).mkdir(parents=True)
        self.volume = top / "var/lib/ottla"
        self.image_properties = top / "usr/local/share/ottla/image.properties"
        self.image_properties.write_text("")
        self.script = top / "bin/ottla-entrypoint"
        text = (TOP / "packaging/image/entrypoint.sh").read_text()
        for path in ("/etc/ottla", "/usr/local/share", "/mnt/shared"):
            assert path in text
            text = text.replace(path, str(top) + path)
        assert "/proc/self/mounts" in text
        text = text.replace("/proc/self/mounts", str(top / "mounts"))
        self.mounted("/", "/var/lib/ottla")
        self.script.write_text(text)
        self.script.chmod(0o755)
        program = top / "bin/ottla"
        program.write_text('#!/bin/sh\necho "pid $$"\nfor word in ottla "$@"; do echo "$word"; done\n')
        program.chmod(0o755)

    def mounted(self, *places: str) -> None:
        """What the kernel says is mounted in the container."""
        (self.top / "mounts").write_text("".join(f"/dev/sda1 {place} ext4 rw 0 0\n" for place in places))

    def run(self, *arguments: str, user: int | None = None, **environment: str) -> Called:
        """Call the entry point; everybody may reach the directory above, whatever the test's own umask is."""
        running = subprocess.Popen(
            ["/bin/sh", str(self.script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.volume,
            env={"PATH": f"{self.top / 'bin'}:{os.defpath}", **environment},
            user=user,
            group=user,
            extra_groups=[] if user is not None else None,
        )
        out, err = running.communicate(timeout=TIMEOUT_S)
        lines = out.splitlines()
        if running.returncode == 0:
            assert lines[0] == f"pid {running.pid}", "the entry point must become the program, or signals get lost"
        return Called(running.returncode, [word.replace(str(self.top), "") for word in lines[1:]], err)


class Called(NamedTuple):
    status: int
    words: list[str]
    err: str


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


IMAGE = "/usr/local/share/ottla/image.properties"


def test_nothing_mounted_serves_with_the_images_own_defaults(container: Container) -> None:
    assert container.run().words == ["ottla", "serve", IMAGE]
    assert container.run("serve", "--log-level", "debug").words == ["ottla", "serve", IMAGE, "--log-level", "debug"]
    assert container.run("--override", "a=b").words == ["ottla", "serve", IMAGE, "--override", "a=b"]


def test_listeners_of_ones_own_go_without_the_images_advertised_address(container: Container) -> None:
    assert container.run(KAFKA_LISTENERS="A://:1").words == ["ottla", "serve"]


def test_listeners_in_bitnamis_spelling_are_ones_own_too(container: Container) -> None:
    assert container.run(KAFKA_CFG_LISTENERS="A://:1").words == ["ottla", "serve"]


@pytest.mark.parametrize("place", ["/bitnami", "/bitnami/kafka", "/var/lib/kafka/data"])
def test_a_volume_where_another_image_has_its_data_is_not_left_empty(container: Container, place: str) -> None:
    container.mounted("/", "/var/lib/ottla", place)
    called = container.run()
    assert called.status == 1
    (line,) = called.err.splitlines()
    assert line.startswith(f"ottla: a volume is mounted at {place}, where another image of Kafka has its data")
    assert "KAFKA_LOG_DIRS" in line
    for variable in ("KAFKA_LOG_DIRS", "KAFKA_CFG_LOG_DIRS"):
        assert container.run(**{variable: f"{place}/data"}).words == ["ottla", "serve", IMAGE]


@pytest.mark.parametrize("place", ["/etc/ottla/server.properties", "/mnt/shared/config/server.properties"])
def test_a_mounted_file_is_served_and_pinged(container: Container, place: str) -> None:
    Path(f"{container.top}{place}").write_text("")
    assert container.run().words == ["ottla", "serve", place]
    assert container.run("ping", "-q").words == ["ottla", "ping", "--serving", place, "-q"]


def test_ping_asks_the_broker_that_serve_would_start(container: Container) -> None:
    assert container.run("ping").words == ["ottla", "ping", "--serving", IMAGE]
    assert container.run("ping", KAFKA_LISTENERS="A://:1").words == ["ottla", "ping", "--serving"]
    assert container.run("ping", "-b", "x:1").words == ["ottla", "ping", "-b", "x:1"]


def test_config_shows_what_serve_would_start_with(container: Container) -> None:
    assert container.run("config").words == ["ottla", "config", IMAGE]
    assert container.run("config", "--effective").words == ["ottla", "config", IMAGE, "--effective"]
    assert container.run("config", KAFKA_LISTENERS="A://:1").words == ["ottla", "config"]
    assert container.run("config", "my.properties").words == ["ottla", "config", "my.properties"]
    assert container.run("config", "--help").words == ["ottla", "config", "--help"]


@pytest.mark.parametrize("option", ["-h", "--help", "-V", "--version"])
def test_help_and_version_are_of_all_commands(container: Container, option: str) -> None:
    assert container.run(option).words == ["ottla", option]


def test_other_commands_and_programs_run_as_they_are(container: Container) -> None:
    assert container.run("topics", "list").words == ["ottla", "topics", "list"]
    assert container.run("serve", "my.properties").words == ["ottla", "serve", "my.properties"]
    assert container.run("serve", "--help").words == ["ottla", "serve", "--help"]
    assert container.run("sh", "-c", 'echo "pid $$"; echo hello').words == ["hello"]


def test_a_file_that_is_missing_on_the_host_is_reported(container: Container) -> None:
    (container.top / "etc/ottla/server.properties").mkdir()
    called = container.run()
    assert called.status == 1
    assert "is a directory: the file that was to be mounted there does not exist on the host" in called.err
    assert len(called.err.splitlines()) == 1


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def reachable(container: Container) -> None:
    """pytest's directories are for their owner only."""
    for directory in (container.top, *container.top.parents):
        if directory.stat().st_uid == os.geteuid() and len(directory.parts) > 2:
            directory.chmod(0o755)


@needs_root
@pytest.mark.parametrize("where", [".", "data"])
def test_a_volume_that_cannot_be_written_is_one_line_with_what_to_do(container: Container, where: str) -> None:
    reachable(container)
    (container.volume / where).mkdir(exist_ok=True)
    called = container.run(user=OTHER)
    assert called.status == 1
    (line,) = called.err.splitlines()
    assert line.startswith(f"ottla: user {OTHER}:{OTHER} cannot write to ")
    assert f"`chown -R {OTHER}:{OTHER}`" in line
    assert line.endswith("--user 0:0")


@needs_root
def test_any_user_may_run_it_who_may_write(container: Container) -> None:
    reachable(container)
    os.chown(container.volume, OTHER, OTHER)
    assert container.run(user=OTHER).words == ["ottla", "serve", IMAGE]


@needs_root
def test_the_volume_does_not_matter_when_the_data_is_elsewhere(container: Container) -> None:
    reachable(container)
    assert container.run(user=OTHER, KAFKA_LOG_DIRS="/elsewhere").status == 0
    (container.top / "etc/ottla/server.properties").write_text("log.dirs = /elsewhere\n")
    assert container.run(user=OTHER).status == 0
