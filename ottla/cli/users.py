"""`ottla users`: list, add and delete users with SCRAM credentials. Passwords come from a prompt, a file or a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import NAME, Choice, FilePath, Number
from ottla.cli.show import one_line
from ottla.cli.tables import table_lines
from ottla.scram import LEAST_ITERATIONS, MOST_ITERATIONS, NUMBERS

if TYPE_CHECKING:
    from ottla.client import Admin

_T = TypeVar("_T")

MECHANISMS = tuple(NUMBERS)
LONGEST_PASSWORD = 4096


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "list": ("ottla.cli.users:list_users", "List users with their SCRAM mechanisms."),
        "add": ("ottla.cli.users:add", "Add a user, or give it another password."),
        "delete": ("ottla.cli.users:delete", "Delete users, or their credentials of one mechanism."),
    },
    short_help="List, add and delete users (SCRAM).",
)
def users() -> None:
    """List, add and delete users with SCRAM credentials."""


def _work(servers: str, work: Callable[[Admin], Awaitable[_T]]) -> _T:
    return with_admin(servers, "ottla-users", work)


@click.command("list")
@bootstrap_server
@click.option("-q", "--quiet", is_flag=True, help="Names alone, one per line.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_users(servers: str, quiet: bool, as_json: bool) -> None:
    """List the users that have SCRAM credentials. Users of PLAIN are in the broker's configuration."""
    found = sorted(_work(servers, lambda admin: admin.describe_user_scram_credentials()).items())
    with closed_pipe_ends_quietly():
        if quiet:
            for user, _ in found:
                click.echo(one_line(user))
        elif as_json:
            for user, infos in found:
                credentials = [{"mechanism": one.mechanism, "iterations": one.iterations} for one in infos]
                click.echo(json.dumps({"user": user, "credentials": credentials}))
        elif found:
            rows = [(user, one.mechanism, str(one.iterations)) for user, infos in found for one in infos]
            click.echo("\n".join(table_lines(rows, ("user", "mechanism", "iterations"))))


@click.command()
@click.argument("user", metavar="NAME", type=NAME)
@bootstrap_server
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=Choice(MECHANISMS),
    metavar="MECHANISM",
    help="Only SCRAM-SHA-256, or only SCRAM-SHA-512. May be repeated.  [default: both]",
)
@click.option(
    "--iterations",
    type=Number(LEAST_ITERATIONS, MOST_ITERATIONS),
    default=LEAST_ITERATIONS,
    show_default=True,
    help="How often the password is hashed.",
)
@click.option(
    "--password-file",
    type=FilePath(path_type=Path),
    metavar="FILE",
    help="Read the password from the first line of a file; - is standard input.",
)
def add(user: str, servers: str, mechanisms: tuple[str, ...], iterations: int, password_file: Path | None) -> None:
    """Add a user, or give it another password. Sessions that have begun continue.

    The password is asked for in a terminal, and read from standard input otherwise. There is no option for it: other
    users of the machine can read command lines. It is salted here and never sent.

    \b
    Examples:
      ottla users add alice
      ottla users add alice --password-file alice.pw --mechanism SCRAM-SHA-512
    """
    from ottla.client import ScramCredentialInfo, UserScramCredentialUpsertion

    if not user.isascii():
        raise Failure(f"{user}: no client could log in, SCRAM's messages have names of ASCII characters only")
    password = _password(user, password_file)
    chosen = mechanisms or MECHANISMS

    async def set_all(admin: Admin) -> None:
        for mechanism in chosen:  # one request each: a user may be named once in it
            info = ScramCredentialInfo(mechanism, iterations)
            await admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, password)])

    _work(servers, set_all)
    click.echo(f"{user}: {', '.join(chosen)} set")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", type=NAME)
@bootstrap_server
@click.option(
    "--mechanism",
    type=Choice(MECHANISMS),
    metavar="MECHANISM",
    help="Only the credential of this mechanism.",
)
def delete(names: tuple[str, ...], servers: str, mechanism: str | None) -> None:
    """Delete the SCRAM credentials of users. Sessions that have begun continue until they end."""
    from ottla.client import UserScramCredentialDeletion

    async def remove(admin: Admin) -> dict[str, list[str]]:
        known = await admin.describe_user_scram_credentials()
        there = {
            name: [info.mechanism for info in known.get(name, []) if mechanism in (None, info.mechanism)]
            for name in dict.fromkeys(names)
        }
        missing = [name for name, found in there.items() if not found]
        if missing:
            kind = "SCRAM credential" if mechanism is None else f"credential of {mechanism}"
            raise Failure(f"there is no {kind} of {', '.join(missing)}; `ottla users list` lists all")
        for name, found in there.items():
            for one in found:
                await admin.alter_user_scram_credentials([UserScramCredentialDeletion(name, one)])
        return there

    for name, removed in _work(servers, remove).items():
        click.echo(f"{name}: {', '.join(removed)} deleted")


def _password(user: str, file: Path | None) -> str:
    """The password: from the file or the pipe, or typed twice. Raises Failure."""
    if file is None and sys.stdin.isatty():
        password: str = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = _first_line(None if str(file) == "-" else file)
    if not password:
        raise Failure("the password is empty")
    return password


def _first_line(file: Path | None) -> str:
    where = "standard input" if file is None else str(file)
    try:
        if file is None:
            line = sys.stdin.buffer.readline(LONGEST_PASSWORD + 2)
        else:
            with file.open("rb") as opened:
                line = opened.readline(LONGEST_PASSWORD + 2)
        text = line.decode()
    except OSError as error:
        raise Failure(f"{where}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{where}: the password is not UTF-8") from None
    password = text.removesuffix("\n").removesuffix("\r")
    if len(password) > LONGEST_PASSWORD:
        raise Failure(f"{where}: its first line is longer than {LONGEST_PASSWORD} characters")
    return password
