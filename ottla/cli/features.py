"""`ottla features`: lists, raises and lowers the levels of a cluster's features."""

from __future__ import annotations

import difflib
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli import suggestions
from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import NAME, Number
from ottla.cli.tables import table_lines

if TYPE_CHECKING:
    from ottla.client import Admin

_T = TypeVar("_T")

HIGHEST_LEVEL = (1 << 15) - 1
_OF_SEVERAL = "The update failed for all features since the following feature had an error: "
_AS_DOWNGRADE = "without setting the upgrade type to either safe or unsafe downgrade"
"""Words of Kafka's messages."""


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "list": ("ottla.cli.features:list_features", "List the features with their levels."),
        "upgrade": ("ottla.cli.features:upgrade", "Raise the level of a feature."),
        "downgrade": ("ottla.cli.features:downgrade", "Lower the level of a feature."),
    },
    short_help="Show, raise and lower the levels of features.",
)
def features() -> None:
    """Show, raise and lower the levels at which a cluster's features run, such as transaction.version."""


def _work(servers: str, work: Callable[[Admin], Awaitable[_T]]) -> _T:
    return with_admin(servers, "ottla-features", work)


# --- list --------------------------------------------------------------------------------------------------------


@click.command("list")
@bootstrap_server
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_features(servers: str, as_json: bool) -> None:
    """List the features: the level that the cluster runs at, and those that the broker supports.

    A feature without a level runs at 0.
    """
    found = _work(servers, lambda admin: admin.describe_features())
    names = ("feature", "level", "least", "highest")
    rows = [(name, one.level, one.least, one.highest) for name, one in found.items()]
    with closed_pipe_ends_quietly():
        if as_json:
            for row in rows:
                click.echo(json.dumps(dict(zip(names, row, strict=True))))
        elif rows:
            click.echo("\n".join(table_lines(rows, names)))


# --- upgrade, downgrade ------------------------------------------------------------------------------------------


_feature_argument = click.argument("feature", type=NAME, shell_complete=suggestions.features)
_level_argument = click.argument("level", type=Number(0, HIGHEST_LEVEL))
_dry_run = click.option("--dry-run", is_flag=True, help="Only check whether it could be done.")


@click.command()
@_feature_argument
@_level_argument
@bootstrap_server
@_dry_run
def upgrade(feature: str, level: int, servers: str, dry_run: bool) -> None:
    """Raise FEATURE to LEVEL, immediately and for all clients.

    \b
    Example:
      ottla features upgrade transaction.version 2
    """
    _change(servers, feature, level, lambda admin: admin.upgrade_features({feature: level}, validate_only=dry_run))
    _say(feature, level, dry_run)


@click.command()
@_feature_argument
@_level_argument
@bootstrap_server
@click.option("--unsafe", is_flag=True, help="Also if data that only the higher level has is lost.")
@_dry_run
def downgrade(feature: str, level: int, servers: str, unsafe: bool, dry_run: bool) -> None:
    """Lower FEATURE to LEVEL, immediately and for all clients. Level 0 removes the feature."""

    def lower(admin: Admin) -> Awaitable[None]:
        return admin.downgrade_features({feature: level}, unsafe=unsafe, validate_only=dry_run)

    _change(servers, feature, level, lower)
    _say(feature, level, dry_run)


def _change(servers: str, feature: str, level: int, ask: Callable[[Admin], Awaitable[None]]) -> None:
    """Change the level, or say in this command's words why not: Kafka's message is about any number of features."""
    from ottla.client import ErrorCode, KafkaError

    async def work(admin: Admin) -> None:
        try:
            await ask(admin)
        except KafkaError as refused:
            if refused.code is not ErrorCode.INVALID_UPDATE_VERSION:
                raise
            known = await admin.describe_features()
            if feature not in known:
                near = difflib.get_close_matches(feature, known, n=1)
                meant = f": did you mean {near[0]}? There" if near else "; there"
                raise Failure(f"there is no feature {feature!r}{meant} are {', '.join(sorted(known))}") from None
            if _AS_DOWNGRADE in refused.message:
                lower = f"`ottla features downgrade {feature} {level}` lowers it"
                raise Failure(f"{feature} is {known[feature].level}, which is higher than {level}: {lower}") from None
            raise KafkaError(refused.code, refused.message.removeprefix(_OF_SEVERAL)) from None

    _work(servers, work)


def _say(feature: str, level: int, dry_run: bool) -> None:
    click.echo(f"{feature} can be {level} (not done, only checked)" if dry_run else f"{feature} is {level}")
