"""One case after another, and what they add up to.

A case is a kind and whatever makes the choices. `execute` lives it and answers what happened; a finding is made
smaller by leaving out steps (or edits) as long as the same kind of finding stays, and written as the text of a corpus
file.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kit.fuzz import batches, files, framing, logins, requests, tls
from kit.fuzz.corpus import edits_to_json, steps_to_json
from kit.fuzz.life import Cost, Life, Step
from kit.fuzz.watch import Finding

KINDS = ("framing", "logins", "tls", "requests", "batches", "files")
LIVES: dict[str, Callable[[random.Random, Life], int]] = {
    "framing": framing.live,
    "logins": logins.live,
    "tls": tls.live,
    "requests": requests.live,
    "batches": batches.live,
}
MEMORY_BYTES, MEMORY_PER_BYTE = 96 << 20, 200
"""A step may allocate so much, and so much for each byte that came. The first holds what one batch may decompress to
beside its copies, the second the objects that one byte of a message makes (protocol/decoder_source.py:
MAX_ELEMENTS)."""
SECONDS, SECONDS_PER_MB = 1.0, 4.0
"""CPU time of one step, for the command only: tests do not measure time."""
SHRINKING_S = 20.0
T = TypeVar("T")


@dataclass
class Outcome:
    """What became of a case."""

    executions: int = 0
    problem: str = ""
    case: str = ""
    """The case as the text of a corpus file, where there is a problem."""
    cost: Cost = field(default_factory=Cost)
    has_started: bool = False


def execute(kind: str, chance: random.Random, *, name: str, is_timed: bool = False, shrinks: bool = True) -> Outcome:
    """Live one case."""
    if kind == "files":
        return _execute_files(chance, name, shrinks)
    reported = Outcome()
    with_kio = chance.random() < 0.5
    life = tls.TlsLife(with_kio=with_kio) if kind == "tls" else Life(with_kio=with_kio)
    try:
        with life:
            reported.executions = LIVES[kind](chance, life)
        problem = bound_problem(life.cost, is_timed=is_timed)
    except Finding as error:
        problem = str(error)
        reported.executions = len(life.steps)
    reported.cost = life.cost
    if problem:
        reported.problem = problem
        steps = _smaller(life.steps, problem, _problem_of_steps) if shrinks else life.steps
        reported.case = steps_to_json(f"{name}: {problem[:300]}", steps)
    return reported


def bound_problem(cost: Cost, *, is_timed: bool) -> str:
    """Which bound the dearest step has broken; empty for none."""
    most = MEMORY_BYTES + MEMORY_PER_BYTE * cost.memory_for_bytes
    if cost.memory_bytes > most:
        return f"{cost.memory_bytes} bytes of memory for {cost.memory_for_bytes} that came, more than {most}"
    most_s = SECONDS + SECONDS_PER_MB * cost.seconds_for_bytes / (1 << 20)
    if is_timed and cost.seconds > most_s:
        return f"{cost.seconds:.1f} s of CPU for a step of {cost.seconds_for_bytes} bytes, more than {most_s:.1f}"
    return ""


def _execute_files(chance: random.Random, name: str, shrinks: bool) -> Outcome:
    ending, edits = files.live(chance)
    reported = Outcome(executions=1)
    problem, looked = _problem_of_files(ending, edits)
    reported.has_started = looked.has_started
    reported.cost.seconds = looked.seconds
    if problem:
        reported.problem = problem
        items = list(edits.items())
        if shrinks:
            items = _smaller(items, problem, lambda kept: _problem_of_files(ending, dict(kept))[0])
        reported.case = edits_to_json(f"{name}: {problem[:300]}", ending, dict(items))
    return reported


def _problem_of_files(ending: str, edits: files.Edits) -> tuple[str, files.Looked]:
    try:
        return "", files.run(ending, edits)
    except Finding as error:
        return str(error), files.Looked()


def _problem_of_steps(steps: list[Step]) -> str:
    life = tls.life_of(steps)
    try:
        with life:
            for step in steps:
                life.step({**step})
            life.end()
    except Finding as error:
        return str(error)
    return ""


def _smaller(items: list[T], problem: str, problem_of: Callable[[list[T]], str]) -> list[T]:
    """Leave out halves, quarters, ... single ones, as long as the problem stays the same but for its numbers."""
    wanted, until = kind_of(problem), time.monotonic() + SHRINKING_S
    if kind_of(problem_of(items)) != wanted:
        return items
    size = len(items) // 2
    while size and time.monotonic() < until:
        at = 0
        while at < len(items) and time.monotonic() < until:
            fewer = items[:at] + items[at + size :]
            if kind_of(problem_of(fewer)) == wanted:
                items = fewer
            else:
                at += size
        size //= 2
    return items


def kind_of(problem: str) -> str:
    """Problems of one kind differ in numbers and names only."""
    return re.sub(r"[0-9]+|'[^']*'|\"[^\"]*\"", "#", problem)[:120]
