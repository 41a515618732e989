"""The same flag means the same in every command; names that do not exist are answered with those that do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import click
import pytest
from kit.command import run

from ottla.cli.lazy import ONE_MEANING
from ottla.cli.main import main


class Flag(NamedTuple):
    """One option of one command."""

    command: str
    option: click.Option
    context: click.Context

    @property
    def shown(self) -> list[str]:
        """Its spellings in `--help`."""
        return [one for one in self.option.opts if one not in getattr(self.option, "old", ())]


def every_flag(command: click.Command = main, parent: click.Context | None = None) -> Iterator[Flag]:
    # With its settings, as click makes it: what a command learns of its --help from its first context it keeps.
    name = "ottla" if parent is None else command.name
    context = click.Context(command, parent=parent, info_name=name, **command.context_settings)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from every_flag(found, context)
    for one in command.params:
        if isinstance(one, click.Option):
            yield Flag(context.command_path, one, context)


FLAGS = list(every_flag())


def test_a_short_flag_is_short_for_one_long_one() -> None:
    meanings: dict[str, set[str]] = defaultdict(set)
    for flag in FLAGS:
        long = next(one for one in flag.shown if one.startswith("--"))
        for short in flag.shown:
            if not short.startswith("--"):
                meanings[short].add(long)
    assert {short: longs for short, longs in meanings.items() if len(longs) > 1} == {}
    assert {short: {long} for short, long in ONE_MEANING.items()}.items() <= meanings.items()


def test_a_long_flag_takes_the_same_everywhere() -> None:
    """A flag with a value is not one without, and `ID` here is not `NAME` there; `[...]` is what one command adds."""
    kinds: dict[str, set[tuple[bool, str]]] = defaultdict(set)
    for flag in FLAGS:
        metavar = "" if flag.option.is_flag else flag.option.make_metavar(flag.context).strip("[]").partition("[")[0]
        for long in flag.shown:
            kinds[long].add((flag.option.is_flag, metavar))
    assert {long: kind for long, kind in kinds.items() if len(kind) > 1} == {}


def test_every_flag_says_what_it_does() -> None:
    assert [flag for flag in FLAGS if not flag.option.help] == []


def test_dry_run_is_where_something_is_changed_or_begun_and_says_so() -> None:
    with_it = {flag.command for flag in FLAGS if "--dry-run" in flag.shown}
    assert with_it >= {
        "ottla topics create",
        "ottla topics alter",
        "ottla topics delete",
        "ottla configs alter",
        "ottla groups reset",
        "ottla groups kick",
        "ottla groups delete",
        "ottla quotas alter",
        "ottla topics delete-records",
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sreve"], "there is no command 'sreve': did you mean serve? There are serve, run,"),
        (["topics", "crate"], "there is no command 'crate': did you mean create? There are create, list,"),
        (["topics", "ls"], "did you mean list?"),
        (["log", "ls"], "there is no command 'ls'; there are"),
        (["log", "verfy"], "did you mean verify?"),
        (["xyzzy"], "there is no command 'xyzzy'; there are serve,"),
        (["consume", "t", "--from-begining"], "--from-beginning"),
        (["topics", "list", "--jso"], "--json"),
        (["consume", "t", "-t", "5"], "No such option -t: it is short for --topic, where that exists."),
        (["groups", "list", "-t", "classic"], "No such option -t: it is short for --topic, where that exists."),
    ],
)
def test_a_mistyped_name_is_answered_with_the_one_that_was_meant(arguments: list[str], words: str) -> None:
    said = run(*arguments)
    assert said.status == 2
    assert words in " ".join(said.err.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["consume", "t", "-o", "9" * 20], f"{'9' * 20} is too large: at most 9223372036854775807"),
        (["consume", "t", "-n", "0"], "0 is too small: at least 1"),
        (["consume", "t", "-p", "-1"], "-1 is too small: at least 0"),
        (["topics", "create", "t", "--partitions", "x"], "'x' is not a whole number"),
        (["topics", "create", "t", "-p", "0"], "Invalid value for '--partitions': 0 is too small: at least 1"),
        (["topics", "create", "t", "--replication-factor", "99999"], "99999 is too large: at most 32767"),
        (["ping", "--timeout-ms", "0"], "0 is too small: at least 1"),
        (["groups", "reset", "g", "--all-topics", "--shift-by", "1.5"], "'1.5' is not a whole number"),
    ],
)
def test_a_number_out_of_bounds_is_refused_in_words(arguments: list[str], words: str) -> None:
    said = run(*arguments)
    assert said.status == 2
    assert words in " ".join(said.err.split())


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("command", sorted({flag.command.removeprefix("ottla ") for flag in FLAGS} - {"ottla"}))
def test_help_has_no_bound_that_nobody_can_read(command: str, columns: str) -> None:
    said = run(*command.split(), "--help", environment={"COLUMNS": columns})
    assert said.status == 0
    for ugly in ("<=x", "x<=", "x>=", "INTEGER RANGE", "9223372036854775807", "2147483647"):
        assert ugly not in said.out
    assert max(map(len, said.out.splitlines())) <= int(columns)


def test_help_says_a_bound_that_matters() -> None:
    assert "[at least 1]" in " ".join(run("consume", "--help").out.split())


@pytest.mark.parametrize(
    "old",
    [
        ["topics", "create", "t", "-p", "2"],
        ["topics", "alter", "t", "-p", "2", "--validate-only"],
        ["topics", "describe", "t", "--configs"],
        ["groups", "list", "-s", "Empty"],
        ["produce", "t", "-a", "1"],
    ],
)
def test_spellings_of_before_are_taken_and_not_shown(old: list[str]) -> None:
    said = run(*old, "-b", "127.0.0.1:1")
    assert said.status == 1, said.err
    assert said.line.startswith("ottla: no broker answers: ")
    shown = run(*old[: 1 if old[0] == "produce" else 2], "--help").out
    assert not {one for one in old if one.startswith("-")} & set(shown.replace(",", " ").split())


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "create", ""],
        ["topics", "describe", "t", ""],
        ["topics", "delete", ""],
        ["topics", "delete-records", "", "--before", "latest"],
        ["groups", "describe", ""],
        ["groups", "why", ""],
        ["groups", "reset", "", "--to-latest", "--all-topics"],
        ["groups", "delete", "g", ""],
        ["groups", "delete", "g", "--topic", ""],
        ["groups", "kick", "g", ""],
        ["features", "downgrade", "", "0"],
        ["configs", "describe", "--topic", ""],
        ["transactions", "describe", ""],
        ["quotas", "list", "--user", ""],
        ["consume", ""],
        ["produce", ""],
        ["log", "clean", ""],
    ],
)
def test_an_empty_name_is_a_wrong_command_line(command: list[str]) -> None:
    said = run(*command)
    assert said.status == 2
    assert "must not be empty" in " ".join(said.err.split())
