"""Where the Dockerfile's steps run without a container engine: a Debian root of its own, or a virtual environment.

`DebianRoot` is a clean system made by debootstrap, entered by chroot in a mount namespace: paths, users and steps are
the image's. `EnvironmentRoot` needs neither root rights nor debootstrap: the image's paths are below a directory of the
test, in the text of each step too, and the steps that make a user and hand over directories are left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from kit.dockerfile import TOP, Instruction, read_dockerfile
from kit.testcontainers_modules import BY_MODULES

BUILD_TIMEOUT_S = 240.0
PATHS = (
    "/opt/ottla",
    "/usr/local/share/ottla",
    "/usr/local/bin/ottla-entrypoint",
    "/etc/kafka/docker",
    "/opt/kafka/bin",
    "/etc/confluent/docker",
    "/var/lib/ottla",
    "/etc/ottla",
    "/src",
    *BY_MODULES,
)
"""The image's own paths, and those that are written from outside."""

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

BASE_VARIABLE = "OTTLA_TEST_IMAGE_BASE"
"""Names a directory with a base system that is copied instead of running debootstrap."""


class BuildFailed(Exception):
    """A step of the Dockerfile failed; its output."""


class ImageRoot(ABC):
    """The file system of the image, after `build`."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.environment: dict[str, str] = {}

    @abstractmethod
    def command(self, words: Sequence[str], user: str) -> list[str]:
        """What runs `words` in the root, as `user` (`uid:gid`) where the form knows users."""

    @abstractmethod
    def step(self, instruction: Instruction) -> None:
        """A RUN of the Dockerfile. Raises BuildFailed."""

    @abstractmethod
    def text(self, text: str) -> str:
        """A file or a value of the image as it must be here."""

    def path(self, path: str) -> Path:
        """Where a path of the image is."""
        return self.top / path.lstrip("/")

    def build(self) -> None:
        """All steps of all stages, one after the other in one root. Raises BuildFailed."""
        for one in read_dockerfile():
            if one.name == "RUN":
                self.step(one)
            elif one.name == "COPY" and "from" not in one.options():
                self._copy(one)
            elif one.name == "ENV":
                name, _, value = one.arguments.partition("=")
                self.environment[name] = self.text(value)

    def start(
        self,
        *words: str,
        user: str = "1000:0",
        environment: Mapping[str, str] | None = None,
        entry_point: Sequence[str] | None = None,
    ) -> subprocess.Popen[str]:
        """Run the entry point, or another one, in the volume, with the image's environment and what is added to it.

        Another one leads a session of its own, so that a test can end all that it has started, as a container does.
        """
        before = ("/bin/sh", self.text("/usr/local/bin/ottla-entrypoint")) if entry_point is None else entry_point
        words = (*before, *words)
        return subprocess.Popen(
            self.command(words, user),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.path("/var/lib/ottla"),
            env={**self.environment, **(environment or {})},
            start_new_session=entry_point is not None,
        )

    def _copy(self, instruction: Instruction) -> None:
        *sources, target = instruction.words()
        for source in sources:
            place = self.path(target) / Path(source).name if target.endswith("/") else self.path(target)
            place.parent.mkdir(parents=True, exist_ok=True)
            if target == "/":
                self._copy_scripts(TOP / source)
            elif (TOP / source).is_dir():
                shutil.copytree(TOP / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            elif target.startswith("/usr/local/bin"):
                place.write_text(self.text((TOP / source).read_text()))
                place.chmod(0o755)
            else:
                shutil.copy(TOP / source, place)
            if "chmod" in instruction.options():
                place.chmod(int(instruction.options()["chmod"], 8))

    def _copy_scripts(self, tree: Path) -> None:
        """Files with the image's paths in their text, at the same places below the root as in their own tree."""
        for source in filter(Path.is_file, tree.rglob("*")):
            place = self.top / source.relative_to(tree)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self.text(source.read_text()))
            place.chmod(0o755)

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
            env=dict(environment),
            cwd=self.top,
        )
        if done.returncode:
            raise BuildFailed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


class EnvironmentRoot(ImageRoot):
    """See the module. pip is configured as the test's own."""

    def text(self, text: str) -> str:
        """The text with the image's paths below our directory."""
        for path in PATHS:
            text = text.replace(path, str(self.top) + path)
        return text

    def build(self) -> None:
        """As everywhere; programs of the image are found before those of the system."""
        super().build()
        self.environment["PATH"] = f"{self.top}/usr/local/bin:{self.environment['PATH']}"

    def step(self, instruction: Instruction) -> None:
        """The steps of the build stage; of those that need root only the directories are made."""
        if instruction.stage:
            for path in ("/var/lib/ottla", "/etc/ottla"):
                self.path(path).mkdir(parents=True, exist_ok=True)
            return
        script = self.text(instruction.arguments)
        search = f"{Path(sys.executable).parent}:{os.defpath}"
        # The slim image has no compiler: what needs one to be installed must be noticed here.
        self._run(["/bin/sh", "-c", script], {**os.environ, "PATH": search, "CC": "false"})

    def command(self, words: Sequence[str], user: str) -> list[str]:
        """The words themselves: there is but one user."""
        return list(words)


class DebianRoot(ImageRoot):
    """See the module. Only root may make one, where debootstrap and its mirror are there."""

    def __init__(self, top: Path, wheels: Path) -> None:
        super().__init__(top)
        self._make_base()
        self._fetch(wheels)

    def _make_base(self) -> None:
        base = os.environ.get(BASE_VARIABLE)
        if base:
            self._run_outside(["cp", "-a", "--reflink=auto", f"{base}/.", str(self.top)])
            return
        suite, mirror = debian_suite_and_mirror()
        command = ["debootstrap", "--variant=minbase", "--include=python3,python3-venv", suite, str(self.top), mirror]
        self._run_outside(command)

    def _fetch(self, wheels: Path) -> None:
        """What pip installs, as files in the root, whose hashes are those of the pins: it needs no network there."""
        for name in ("build-requirements.txt", "requirements.txt"):
            pins = str(TOP / "packaging/image" / name)
            options = ["--quiet", "--no-deps", "--no-build-isolation", "--require-hashes", "--dest", str(wheels)]
            self._run_outside([sys.executable, "-m", "pip", "download", *options, "-r", pins])
        shutil.copytree(wheels, self.path("/wheels"))

    def _run_outside(self, command: Sequence[str]) -> None:
        self.top.mkdir(parents=True, exist_ok=True)
        self._run(command, os.environ)

    def text(self, text: str) -> str:
        """As it is."""
        return text

    def step(self, instruction: Instruction) -> None:
        """Every RUN as it stands there."""
        environment = {"PATH": SEARCH_PATH, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels", "CC": "false"}
        self._run(self.command(["/bin/sh", "-c", instruction.arguments], "0:0"), environment)

    def command(self, words: Sequence[str], user: str) -> list[str]:
        """chroot in a mount namespace; each program replaces the one before, so that signals reach the last."""
        enter = (
            'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && root=$1 user=$2 place=$3 && shift 3 && '
            'exec chroot --userspec="$user" "$root" /bin/sh -c \'cd "$0" && exec "$@"\' "$place" "$@"'
        )
        place = "/var/lib/ottla" if self.path("/var/lib/ottla").exists() else "/"
        inside = ["/bin/sh", "-c", enter, "sh", str(self.top), user, place, *words]
        return ["/usr/bin/env", f"PATH={SEARCH_PATH}", "unshare", "--mount", *self._with_path(inside)]

    def _with_path(self, inside: list[str]) -> list[str]:
        """The image's PATH is for the inside; outside `mount` and `chroot` have to be found."""
        script = inside[2].replace('exec "$@"', f'PATH={self.environment.get("PATH", SEARCH_PATH)} exec "$@"')
        return [*inside[:2], script, *inside[3:]]


def debian_suite_and_mirror() -> tuple[str, str]:
    """This system's suite, and the mirror that its apt uses."""
    release = Path("/etc/os-release").read_text()
    suite = next(line.partition("=")[2] for line in release.splitlines() if line.startswith("VERSION_CODENAME="))
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {suite}"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    return suite.strip('"'), found[0]


def why_no_debian_root() -> str | None:
    """Why a Debian root cannot be made here; None when it can."""
    if os.geteuid() != 0:
        return "only root may chroot"
    for program in ("chroot", "unshare", "mount"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    if not os.environ.get(BASE_VARIABLE) and shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, timeout=60, check=False).returncode:
        return "mount namespaces are not allowed"
    return None
