"""`ottla tokens`: list, create, renew and expire delegation tokens. Secrets are shown once, when a token is created."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import NAME
from ottla.cli.tables import table_lines

if TYPE_CHECKING:
    from ottla.client import Admin, DelegationToken

_T = TypeVar("_T")


def _principal(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse what is not a principal before a broker is asked."""
    kind, colon, name = ("User", ":", "nobody") if value is None else value.partition(":")
    if not (kind and colon and name):
        raise click.BadParameter(f"{value!r} must be a principal, as User:alice")
    return value


def _principals(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        _principal(context, parameter, value)
    return values


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "list": ("ottla.cli.tokens:list_tokens", "List delegation tokens, without their secrets."),
        "create": ("ottla.cli.tokens:create", "Create a token, and show its secret."),
        "renew": ("ottla.cli.tokens:renew", "Let a token expire later."),
        "expire": ("ottla.cli.tokens:expire", "End a token now, or after a while."),
    },
    short_help="List, create, renew and expire delegation tokens.",
)
def tokens() -> None:
    """List, create, renew and expire delegation tokens (KIP-48)."""


def _work(servers: str, work: Callable[[Admin], Awaitable[_T]]) -> _T:
    return with_admin(servers, "ottla-tokens", work)


@click.command("list")
@bootstrap_server
@click.option(
    "--owner",
    "owners",
    multiple=True,
    callback=_principals,
    metavar="User:NAME",
    help="Only tokens that NAME owns or may renew.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_tokens(servers: str, owners: tuple[str, ...], as_json: bool) -> None:
    """List the delegation tokens that you own, may renew, or may describe. Their secrets are not shown."""
    found = sorted(_work(servers, lambda admin: admin.describe_delegation_tokens(owners or None)), key=_by_expiry)
    with closed_pipe_ends_quietly():
        if as_json:
            for token in found:
                click.echo(json.dumps(_fields(token)))
        elif found:
            rows = [(token.token_id, token.owner, ",".join(token.renewers), _time(token)) for token in found]
            click.echo("\n".join(table_lines(rows, ("token", "owner", "renewers", "expires"))))


@click.command()
@bootstrap_server
@click.option("--owner", callback=_principal, metavar="User:NAME", help="The owner of the token; without it you.")
@click.option(
    "--renewer",
    "renewers",
    multiple=True,
    callback=_principals,
    metavar="User:NAME",
    help="A user that may renew it. May be repeated.",
)
@click.option("--lifetime-ms", type=int, default=-1, help="Longest lifetime; the broker's longest without it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with the secret as `password`.")
def create(servers: str, owner: str | None, renewers: tuple[str, ...], lifetime_ms: int, as_json: bool) -> None:
    """Create a delegation token. Its holder logs in by SCRAM as its owner, with the two values that are shown.

    \b
    Examples:
      ottla tokens create --renewer User:scheduler --lifetime-ms 3600000
      ottla tokens create --owner User:alice --json
    """
    token = _work(
        servers,
        lambda admin: admin.create_delegation_token(owner=owner, renewers=renewers, max_lifetime_ms=lifetime_ms),
    )
    if as_json:
        click.echo(json.dumps({**_fields(token), "password": token.password}))
    else:
        click.echo(f"username: {token.token_id}\npassword: {token.password}")
        click.echo(f"of {token.owner}, expires {_time(token)}; clients set tokenauth=true", err=True)


@click.command()
@click.argument("token_id", metavar="TOKEN", type=NAME)
@bootstrap_server
@click.option("--period-ms", type=int, default=-1, help="From now; the broker's default without it.")
def renew(token_id: str, servers: str, period_ms: int) -> None:
    """Let a token expire later. TOKEN is its id, as `ottla tokens list` shows it."""
    expiry_ms = _work(servers, lambda admin: _renew(admin, token_id, period_ms))
    click.echo(f"{token_id}: expires {_as_time(expiry_ms)}")


@click.command()
@click.argument("token_id", metavar="TOKEN", type=NAME)
@bootstrap_server
@click.option("--period-ms", type=int, default=-1, help="From now; without it the token ends now.")
def expire(token_id: str, servers: str, period_ms: int) -> None:
    """End a token now, or after a while. Sessions that have begun with it continue until they end."""
    expiry_ms = _work(servers, lambda admin: _expire(admin, token_id, period_ms))
    click.echo(f"{token_id}: expires {_as_time(expiry_ms)}" if period_ms >= 0 else f"{token_id}: ended")


async def _renew(admin: Admin, token_id: str, period_ms: int) -> int:
    return await admin.renew_delegation_token(await _secret(admin, token_id), period_ms)


async def _expire(admin: Admin, token_id: str, period_ms: int) -> int:
    return await admin.expire_delegation_token(await _secret(admin, token_id), period_ms)


async def _secret(admin: Admin, token_id: str) -> bytes:
    """The secret of a token, which the broker returns. It is no argument: other users can read command lines."""
    for token in await admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token.hmac
    raise Failure(f"there is no delegation token {token_id} that you may see; `ottla tokens list` lists all")


def _fields(token: DelegationToken) -> dict[str, object]:
    return {
        "token": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issue_timestamp_ms,
        "expires_ms": token.expiry_timestamp_ms,
        "most_ms": token.max_timestamp_ms,
    }


def _by_expiry(token: DelegationToken) -> int:
    return token.expiry_timestamp_ms


def _time(token: DelegationToken) -> str:
    return _as_time(token.expiry_timestamp_ms)


def _as_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
