"""`ottla features`: lists, raises and lowers the levels of a cluster's features."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli import suggestions
from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import Number
from ottla.cli.tables import table_lines

if TYPE_CHECKING:
    from ottla.client import Admin

_T = TypeVar("_T")

HIGHEST_LEVEL = (1 << 15) - 1


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


_feature_argument = click.argument("feature", shell_complete=suggestions.features)
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
    _work(servers, lambda admin: admin.upgrade_features({feature: level}, validate_only=dry_run))
    _say(feature, level, dry_run)


@click.command()
@_feature_argument
@_level_argument
@bootstrap_server
@click.option("--unsafe", is_flag=True, help="Also if data that only the higher level has is lost.")
@_dry_run
def downgrade(feature: str, level: int, servers: str, unsafe: bool, dry_run: bool) -> None:
    """Lower FEATURE to LEVEL, immediately and for all clients. Level 0 removes the feature."""
    _work(servers, lambda admin: admin.downgrade_features({feature: level}, unsafe=unsafe, validate_only=dry_run))
    _say(feature, level, dry_run)


def _say(feature: str, level: int, dry_run: bool) -> None:
    click.echo(f"{feature} can be {level} (not done, only checked)" if dry_run else f"{feature} is {level}")
