"""`ottla quotas`: the client quotas that are set, and those that count for a client. `quotas_alter.py` changes them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import reduce, wraps
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli import suggestions
from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import WrongOption, closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import NAME, Address, Name
from ottla.cli.quota_entities import (
    ALL_QUOTAS,
    CLIENT_ID,
    CLIENT_QUOTAS,
    IP,
    IP_QUOTAS,
    USER,
    InEffect,
    entity_of,
    entity_words,
    quotas_of_address,
    quotas_of_client,
    shown_value,
)
from ottla.cli.show import one_line
from ottla.cli.tables import table_lines

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin_settings_results import QuotaEntity

_F = TypeVar("_F", bound=Callable[..., object])
_T = TypeVar("_T")

WITHOUT_LOGIN = "ANONYMOUS"
"""Kafka's name for the user of a connection that does not log in."""


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "list": ("ottla.cli.quotas:list_quotas", "List the quotas that are set."),
        "describe": ("ottla.cli.quotas:describe", "Show the quotas that count for a client, and what set them."),
        "alter": ("ottla.cli.quotas_alter:alter", "Set and remove quotas."),
    },
    short_help="Show, set and remove quotas of users, client ids and addresses.",
)
def quotas() -> None:
    """Show, set and remove client quotas: how much a user, a client id, both together, or an address may take.

    \b
    producer_byte_rate        bytes per second that a client writes
    consumer_byte_rate        bytes per second that a client reads
    request_percentage        time of its requests, in percent of a processor
    controller_mutation_rate  partitions per second that it creates and deletes
    connection_creation_rate  connections per second of an address
    """


_OF_OTHERS = {
    **dict.fromkeys(("-t", "--topic"), "a topic has no quotas"),
    **dict.fromkeys(("-g", "--group"), "a group has no quotas"),
    **dict.fromkeys(("--broker", "--all-brokers"), "a broker has no quotas"),
    **dict.fromkeys(("--entity-type", "--entity-name", "--entity-default"), "entities are named by their type"),
}
"""Options that users may try: of resources without quotas, and those of kafka-configs."""


class QuotasCommand(click.Command):
    """A command whose error about an unknown option names the entities that have quotas."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's. Raises WrongOption."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _OF_OTHERS:
                raise
            raise WrongOption(
                f"{error.option_name}: {_OF_OTHERS[error.option_name]}: give --user, --client-id or --ip, "
                "or their --user-defaults, --client-defaults or --ip-defaults"
            ) from None


def work_on_quotas(servers: str, work: Callable[[Admin], Awaitable[_T]]) -> _T:
    """Return the result of `work` with an Admin."""
    return with_admin(servers, "ottla-quotas", work)


_ENTITIES = {
    "--user": ("NAME", suggestions.quota_users),
    "--client-id": ("ID", suggestions.quota_client_ids),
    "--ip": ("ADDRESS", suggestions.quota_addresses),
}
"""The options that name entities: what is shown for their values, and completions."""


def _entity_option(
    option: str, parameter: str, meaning: str, *, many: bool = False, kind: Name = NAME
) -> Callable[[_F], _F]:
    metavar, completions = _ENTITIES[option]
    return click.option(
        option, parameter, multiple=many, metavar=metavar, type=kind, shell_complete=completions, help=meaning
    )


def entity_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name entities, as in kafka-configs; the command gets them as `entities`."""

    @wraps(command)
    def named(
        users: tuple[str, ...],
        user_defaults: bool,
        client_ids: tuple[str, ...],
        client_defaults: bool,
        addresses: tuple[str, ...],
        ip_defaults: bool,
        **others: object,
    ) -> None:
        entities = chosen_entities(users, user_defaults, client_ids, client_defaults, addresses, ip_defaults)
        command(entities=entities, **others)

    options = [
        _entity_option("--user", "users", "This user. May be repeated.", many=True),
        click.option("--user-defaults", is_flag=True, help="All users without a quota of their own."),
        _entity_option(
            "--client-id", "client_ids", "This client id; with a user, of this user. May be repeated.", many=True
        ),
        click.option("--client-defaults", is_flag=True, help="All client ids without a quota of their own."),
        _entity_option("--ip", "addresses", "This address. May be repeated.", many=True),
        click.option("--ip-defaults", is_flag=True, help="All addresses without a quota of their own."),
    ]
    return reduce(lambda made, option: option(made), reversed(options), named)


def chosen_entities(
    users: Sequence[str],
    user_defaults: bool,
    client_ids: Sequence[str],
    client_defaults: bool,
    addresses: Sequence[str],
    ip_defaults: bool,
) -> list[QuotaEntity]:
    """The entities that the options name: each user with each client id, and each address. Raises WrongOption."""
    named_users: list[str | None] = [*users, *([None] if user_defaults else [])]
    named_clients: list[str | None] = [*client_ids, *([None] if client_defaults else [])]
    named_addresses: list[str | None] = [*addresses, *([None] if ip_defaults else [])]
    if named_addresses and (named_users or named_clients):
        raise WrongOption("an address has quotas of its own: give --ip without --user and --client-id")
    parts: list[dict[str, str | None]]
    if named_addresses:
        parts = [{IP: address} for address in named_addresses]
    elif named_users and named_clients:
        parts = [{USER: user, CLIENT_ID: client_id} for user in named_users for client_id in named_clients]
    else:
        parts = [{USER: user} for user in named_users] + [{CLIENT_ID: client_id} for client_id in named_clients]
    return list(dict.fromkeys(map(entity_of, parts)))


# --- list --------------------------------------------------------------------------------------------------------


@click.command("list", cls=QuotasCommand)
@entity_options
@bootstrap_server
@click.option("--json", "as_json", is_flag=True, help="One JSON object per user, client id or address.")
def list_quotas(entities: list[QuotaEntity], servers: str, as_json: bool) -> None:
    """List the quotas that are set; with options, those of the users, client ids or addresses that are named.

    A user or client id that is named alone is also listed together with others: --user alice lists alice, and alice
    with each client id.

    \b
    Examples:
      ottla quotas list
      ottla quotas list --user alice
      ottla quotas list --ip-defaults --json
    """
    found = work_on_quotas(servers, lambda admin: admin.describe_quotas())
    shown = {
        entity: values
        for entity, values in sorted(found.items(), key=lambda one: _order(one[0]))
        if not entities or any(set(one) <= set(entity) for one in entities)
    }
    with closed_pipe_ends_quietly():
        if as_json:
            for entity, values in shown.items():
                quotas_shown = {name: shown_value(value) for name, value in sorted(values.items())}
                click.echo(json.dumps({"entity": dict(entity), "quotas": quotas_shown}))
        elif shown:
            rows = [
                (entity_words(entity), name, shown_value(values[name]), ALL_QUOTAS.get(name, ""))
                for entity, values in shown.items()
                for name in sorted(values)
            ]
            click.echo("\n".join(table_lines(rows, ("entity", "quota", "value", "unit"))))


def _order(entity: QuotaEntity) -> tuple[object, ...]:
    """Users first, then client ids, then addresses; of each the default last."""
    parts = dict(entity)
    return tuple((kind not in parts, parts.get(kind) is None, parts.get(kind) or "") for kind in (USER, CLIENT_ID, IP))


# --- describe ----------------------------------------------------------------------------------------------------


@click.command(cls=QuotasCommand)
@_entity_option(
    "--user", "user", f"The user of the client's login.  [default: {WITHOUT_LOGIN}, a client without login]"
)
@_entity_option("--client-id", "client_id", "Its client id.  [default: one that has no quota of its own]")
@_entity_option("--ip", "address", "The address from which it connects.", kind=Address())
@bootstrap_server
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def describe(user: str | None, client_id: str | None, address: str | None, servers: str, as_json: bool) -> None:
    """Show the quotas that count for a client, and what each is set for: its own, or a default.

    The first one that is set counts, in this order: user and client id; user and default client id; user; default user
    and client id; both defaults; default user; client id; default client id.

    \b
    Examples:
      ottla quotas describe --user alice --client-id billing
      ottla quotas describe --client-id billing
      ottla quotas describe --ip 10.0.0.7
    """
    if user is None and client_id is None and address is None:
        raise click.UsageError("name a client: --user, --client-id or --ip")
    found = work_on_quotas(servers, lambda admin: admin.describe_quotas())
    names: dict[str, str | None] = {}
    in_effect: dict[str, InEffect] = {}
    kinds: dict[str, str] = {}
    if user is not None or client_id is not None:
        names |= {USER: user or WITHOUT_LOGIN, **({} if client_id is None else {CLIENT_ID: client_id})}
        kinds |= CLIENT_QUOTAS
        in_effect |= quotas_of_client(found, user or WITHOUT_LOGIN, client_id)
    if address is not None:
        names[IP] = address
        kinds |= IP_QUOTAS
        in_effect |= quotas_of_address(found, address)
    kinds |= {name: "" for name in in_effect if name not in kinds}  # a quota that this program does not know
    with closed_pipe_ends_quietly():
        if as_json:
            click.echo(json.dumps({"client": names, "quotas": [_to_json(name, in_effect) for name in kinds]}))
            return
        click.echo(click.style(one_line(entity_words(entity_of(names))), bold=True))
        rows = [_row(name, unit, in_effect.get(name)) for name, unit in kinds.items()]
        for line in table_lines(rows, ("quota", "value", "unit", "set for")):
            click.echo(f"  {line}")


def _row(name: str, unit: str, quota: InEffect | None) -> tuple[object, ...]:
    if quota is None:
        return (name, None, unit, "no limit")
    return (name, shown_value(quota.value), unit, entity_words(quota.entity))


def _to_json(name: str, in_effect: Mapping[str, InEffect]) -> dict[str, object]:
    quota = in_effect.get(name)
    return {
        "quota": name,
        "value": None if quota is None else shown_value(quota.value),
        "set_for": None if quota is None else dict(quota.entity),
    }
