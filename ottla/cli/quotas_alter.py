"""`ottla quotas alter`: sets and removes quotas of users, client ids and addresses while the broker runs."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ottla.cli import suggestions
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import Failure, WrongOption
from ottla.cli.quota_entities import ALL_QUOTAS, CLIENT_QUOTAS, IP, IP_QUOTAS, entity_words, shown_value
from ottla.cli.quotas import QuotasCommand, entity_options, work_on_quotas
from ottla.cli.show import one_line
from ottla.cli.topics import NOT_DONE

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin_settings_results import QuotaEntity

_Changes = Mapping[str, float | None]
"""Values by quota; None removes one."""


@click.command(cls=QuotasCommand)
@entity_options
@bootstrap_server
@click.option(
    "--set",
    "to_set",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=suggestions.quota_pairs,
    help="Give the quota this value.",
)
@click.option(
    "--delete",
    "to_delete",
    multiple=True,
    metavar="KEY",
    shell_complete=suggestions.quota_keys,
    help="Remove the quota.",
)
@click.option("--dry-run", is_flag=True, help="Only check whether it could be done.")
def alter(
    entities: list[QuotaEntity],
    servers: str,
    to_set: tuple[str, ...],
    to_delete: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Set and remove quotas of users, client ids, both together, or addresses.

    Changes are in effect when the command ends, and survive a restart.

    \b
    Examples:
      ottla quotas alter --user alice --set producer_byte_rate=1048576
      ottla quotas alter --user alice --client-id app --set request_percentage=50
      ottla quotas alter --user-defaults --set consumer_byte_rate=2097152
      ottla quotas alter --ip-defaults --set connection_creation_rate=10
      ottla quotas alter --user alice --delete producer_byte_rate
    """
    if not entities:
        raise click.UsageError(
            "name an entity: --user, --client-id or --ip, or --user-defaults, --client-defaults or --ip-defaults"
        )
    if not to_set and not to_delete:
        raise click.UsageError("say what to change: --set or --delete")
    is_of_addresses = IP in dict(entities[0])
    changes = _changes(to_set, to_delete, is_of_addresses=is_of_addresses)

    async def change(admin: Admin) -> None:
        from ottla.client import AdminError

        await _refuse_missing_deletions(admin, entities, to_delete)
        try:
            await admin.alter_quotas(dict.fromkeys(entities, changes), validate_only=dry_run)
        except AdminError as refused:
            words = {_answered_name(entity): entity_words(entity) for entity in entities}
            for entity in entities:
                if _answered_name(entity) not in refused.errors:
                    _say(entity, changes, dry_run)
            raise AdminError({words.get(name, name): error for name, error in refused.errors.items()}) from None

    work_on_quotas(servers, change)
    for entity in entities:
        _say(entity, changes, dry_run)


def _changes(to_set: Sequence[str], to_delete: Sequence[str], *, is_of_addresses: bool) -> _Changes:
    """The changes that the options describe. Raises WrongOption."""
    changes: dict[str, float | None] = {}
    pairs = [text.partition("=") for text in to_set]
    for text, (key, equals, _) in zip(to_set, pairs, strict=True):
        if not equals or not key.strip():
            raise WrongOption(f"--set: {text!r} is not KEY=VALUE, such as producer_byte_rate=1048576")
    keys = [key.strip() for key in (*(key for key, _, _ in pairs), *to_delete)]
    for key in keys:
        _require_quota(key, is_of_addresses=is_of_addresses)
    repeated = [key for key, times in Counter(keys).items() if times > 1]
    if repeated:
        raise WrongOption(f"{repeated[0]} is named twice")
    for key, _, text in pairs:
        changes[key.strip()] = _value(key.strip(), text)
    return changes | dict.fromkeys(key.strip() for key in to_delete)


def _require_quota(key: str, *, is_of_addresses: bool) -> None:
    known, others = (IP_QUOTAS, CLIENT_QUOTAS) if is_of_addresses else (CLIENT_QUOTAS, IP_QUOTAS)
    if key in known:
        return
    if key in others:
        whose = "--user or --client-id" if is_of_addresses else "--ip or --ip-defaults"
        raise WrongOption(f"{key} is a quota of {'clients' if is_of_addresses else 'addresses'}: give it to {whose}")
    near = difflib.get_close_matches(key, known, n=1)
    meant = f": did you mean {near[0]}? There" if near else "; there"
    whose = "addresses" if is_of_addresses else "clients"
    raise WrongOption(f"there is no quota {key!r}{meant} are, for {whose}, {', '.join(known)}")


def _value(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise WrongOption(f"{key}={text}: {text!r} is not a number; the quota counts {ALL_QUOTAS[key]}")
    if value <= 0:
        raise WrongOption(f"{key}={text}: a quota is greater than 0; `--delete {key}` removes it")
    return value


async def _refuse_missing_deletions(admin: Admin, entities: Sequence[QuotaEntity], to_delete: Sequence[str]) -> None:
    """Refuse to remove a quota that is not set, as kafka-configs does: brokers would accept it."""
    if not to_delete:
        return
    there = await admin.describe_quotas()
    for entity in entities:
        for key in to_delete:
            if key.strip() not in there.get(entity, {}):
                has = ", ".join(sorted(there.get(entity, {}))) or "none"
                raise Failure(f"{entity_words(entity)} has no quota {key.strip()} (it has {has}); nothing was changed")


def _answered_name(entity: QuotaEntity) -> str:
    """The name under which `alter_quotas` reports a refusal."""
    return ",".join(f"{kind}={name or '*'}" for kind, name in entity)


def _say(entity: QuotaEntity, changes: _Changes, dry_run: bool) -> None:
    words = [f"{key} deleted" if value is None else f"{key}={shown_value(value)}" for key, value in changes.items()]
    click.echo(f"{one_line(entity_words(entity))}: {', '.join(words)}{NOT_DONE if dry_run else ''}")
