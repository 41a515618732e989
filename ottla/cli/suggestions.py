"""Completions of arguments for a shell: names that the broker knows, and keys of configurations and clients.

The broker is the one that the line names with --bootstrap-server, else the default one. It has a second to answer. If
it does not, there are no completions, and no error, which would be written into the line that is being typed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.probe import DEFAULT_SERVER

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.config.options import Option

TIMEOUT_S: Final = 1.0
MOST: Final = 1_000
"""How many completions are offered; a broker may have any number of names."""

_Ask = Callable[["Admin"], Awaitable[Iterable[str]]]


def topics(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of topics; internal ones only after their first letters."""

    async def ask(admin: Admin) -> Iterable[str]:
        names = await admin.list_topics(include_internal=True)
        return [name for name in names if incomplete or not name.startswith("__")]

    return _matching(_asked(context, ask), incomplete)


def groups(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Ids of groups."""

    async def ask(admin: Admin) -> Iterable[str]:
        return [one.group_id for one in await admin.list_groups()]

    return _matching(_asked(context, ask), incomplete)


def transactional_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Transactional ids."""

    async def ask(admin: Admin) -> Iterable[str]:
        return [one.transactional_id for one in await admin.list_transactions()]

    return _matching(_asked(context, ask), incomplete)


def features(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of features."""

    async def ask(admin: Admin) -> Iterable[str]:
        return await admin.describe_features()

    return _matching(_asked(context, ask), incomplete)


def topic_pairs(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """`KEY=` for each key of a topic."""
    from ottla.config.topic import ALL_TOPIC_KEYS

    return _pairs(ALL_TOPIC_KEYS, incomplete)


def broker_pairs(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """`KEY=` for each key of a broker."""
    from ottla.config.broker import ALL_BROKER_KEYS

    return _pairs(ALL_BROKER_KEYS, incomplete)


def altered_pairs(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """`KEY=` for each key of what the line names: a topic, a group, or a running broker; else of all three."""
    return _pairs(_alterable(context.params), incomplete)


def altered_keys(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """As `altered_pairs`, the key alone."""
    return _matching(_effective(_alterable(context.params)), incomplete)


def producer_pairs(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """`KEY=` for each option of a producer."""
    from ottla.client.producer_options import ProducerOptions

    return _matching((f"{name}=" for name in _names(ProducerOptions)), incomplete)


def consumer_pairs(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """`KEY=` for each option of a consumer, or of a share consumer if the line names a share group."""
    from ottla.client.consumer_options import ConsumerOptions
    from ottla.client.share_consumer_options import ShareConsumerOptions

    kind = ConsumerOptions if context.params.get("share_group") is None else ShareConsumerOptions
    return _matching((f"{name}=" for name in _names(kind)), incomplete)


def quota_users(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of users that have quotas, or log in by SCRAM."""

    async def ask(admin: Admin) -> Iterable[str]:
        return {*await _quota_names(admin, "user"), *await admin.describe_user_scram_credentials()}

    return _matching(_asked(context, ask), incomplete)


def quota_client_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Client ids that have quotas."""
    return _matching(_asked(context, lambda admin: _quota_names(admin, "client-id")), incomplete)


def quota_addresses(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Addresses that have quotas."""
    return _matching(_asked(context, lambda admin: _quota_names(admin, "ip")), incomplete)


def quota_keys(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The quotas of clients or of addresses, as the line names them; else all."""
    from ottla.cli.quota_entities import ALL_QUOTAS, CLIENT_QUOTAS, IP_QUOTAS

    params = context.params
    is_of_addresses = params.get("addresses") or params.get("ip_defaults")
    is_of_clients = any(params.get(name) for name in ("users", "user_defaults", "client_ids", "client_defaults"))
    named = IP_QUOTAS if is_of_addresses else CLIENT_QUOTAS if is_of_clients else ALL_QUOTAS
    return _matching(named, incomplete)


def quota_pairs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """As `quota_keys`, `KEY=`."""
    return [f"{key}=" for key in quota_keys(context, parameter, incomplete)]


async def _quota_names(admin: Admin, kind: str) -> Iterable[str]:
    found = [dict(entity).get(kind) for entity in await admin.describe_quotas()]
    return {name for name in found if name is not None}


def _alterable(params: Mapping[str, object]) -> dict[str, Option]:
    from ottla.config.broker import ALL_BROKER_KEYS
    from ottla.config.resources import GroupConfig
    from ottla.config.topic import ALL_TOPIC_KEYS

    dynamic = {key: option for key, option in ALL_BROKER_KEYS.items() if option.is_dynamic}
    named: dict[str, Option] = {}
    if params.get("topics"):
        named |= ALL_TOPIC_KEYS
    if params.get("groups"):
        named |= GroupConfig.by_key
    if params.get("brokers") or params.get("all_brokers"):
        named |= dynamic
    return named if named or params.get("loggers") else ALL_TOPIC_KEYS | GroupConfig.by_key | dynamic


def _names(kind: type) -> list[str]:
    from dataclasses import fields

    from ottla.cli.client_properties import CODE

    return [one.name.replace("_", ".") for one in fields(kind) if one.name not in CODE]


def _effective(options: Mapping[str, Option]) -> list[str]:
    return [key for key, option in options.items() if not option.inert]


def _pairs(options: Mapping[str, Option], incomplete: str) -> list[str]:
    return _matching((f"{key}=" for key in _effective(options)), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))[:MOST]


def _asked(context: click.Context, ask: _Ask) -> Iterable[str]:
    import asyncio
    import logging

    from ottla.cli.client_properties import options_of
    from ottla.client import Admin
    from ottla.client.options import AdminOptions

    logging.disable(logging.CRITICAL)  # a log line would be written into the line that is being typed
    milliseconds = round(TIMEOUT_S * 1000)
    limits = {
        "client_id": "ottla-completion",
        "default_api_timeout_ms": milliseconds,
        "request_timeout_ms": milliseconds,
        "socket_connection_setup_timeout_ms": milliseconds,
    }

    async def run() -> Iterable[str]:
        async with asyncio.timeout(TIMEOUT_S):
            servers = str(context.params.get("servers") or DEFAULT_SERVER)
            async with Admin(servers, **options_of(AdminOptions, servers, limits)) as admin:
                return await ask(admin)

    try:
        return asyncio.run(run())
    except Exception:  # an error of any kind means no completions
        return []
