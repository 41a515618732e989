"""A Dockerfile as its instructions: enough of the syntax to read ours and to notice when it grows beyond that."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[2]
"""The top of the clone."""

KNOWN = {
    *("FROM", "RUN", "COPY", "ENV", "WORKDIR", "VOLUME", "EXPOSE", "USER"),
    *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
}


class Instruction(NamedTuple):
    """One instruction of one stage (from 0); `arguments` as they stand there, continuation lines joined."""

    stage: int
    name: str
    arguments: str

    def words(self) -> list[str]:
        """The arguments of the JSON form, or those between blanks, without options."""
        if self.arguments.startswith("["):
            words: list[str] = json.loads(self.arguments)
            return words
        return [word for word in self.arguments.split() if not word.startswith("--")]

    def options(self) -> dict[str, str]:
        """`--from=build` and the like."""
        return dict(re.findall(r"(?:^|\s)--([a-z-]+)=(\S+)", self.arguments))


def read_dockerfile(path: Path = TOP / "Dockerfile") -> list[Instruction]:
    """The instructions. ValueError for one that is not known here."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[Instruction] = []
    stage = -1
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, arguments = line.partition(" ")
        if name not in KNOWN:
            raise ValueError(f"{path.name}: {line}")
        stage += name == "FROM"
        found.append(Instruction(stage, name, arguments.strip()))
    return found


def only(name: str) -> Instruction:
    """The one instruction of that name in the final stage."""
    found = read_dockerfile()
    (one,) = (each for each in found if each.name == name and each.stage == found[-1].stage)
    return one
