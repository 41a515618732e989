"""`ottla configs alter`: changes keys of topics, brokers, groups and loggers while the broker runs."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import click

from ottla.cli import suggestions
from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.configs import group_option, named_by_words, resource_words, topic_option
from ottla.cli.failures import Failure
from ottla.cli.parameters import Number
from ottla.cli.show import one_line
from ottla.diagnosis.dead_letter_diagnosis import COPY_KEY, NAME_KEY, diagnose_dead_letters

if TYPE_CHECKING:
    from ottla.client import Admin, ConfigChange, ConfigResource


@click.command()
@bootstrap_server
@topic_option
@click.option(
    "--broker", "brokers", multiple=True, type=Number(0, 2**31 - 1), metavar="ID", help="The broker with this node id."
)
@click.option("--all-brokers", is_flag=True, help="All brokers that do not set the key themselves.")
@group_option
@click.option(
    "--loggers",
    "loggers",
    multiple=True,
    type=Number(0, 2**31 - 1),
    metavar="ID",
    help="The loggers of the broker with this node id.",
)
@click.option(
    "--set",
    "to_set",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=suggestions.altered_pairs,
    help="Give the key this value.",
)
@click.option(
    "--delete",
    "to_delete",
    multiple=True,
    metavar="KEY",
    shell_complete=suggestions.altered_keys,
    help="Remove the key, so that it has its inherited value.",
)
@click.option(
    "--append",
    "to_append",
    multiple=True,
    metavar="KEY=ITEM[,ITEM]",
    shell_complete=suggestions.altered_pairs,
    help="Add items to the key's list.",
)
@click.option(
    "--subtract",
    "to_subtract",
    multiple=True,
    metavar="KEY=ITEM[,ITEM]",
    shell_complete=suggestions.altered_pairs,
    help="Remove items from the key's list.",
)
@click.option("--dry-run", is_flag=True, help="Only check whether it could be done.")
def alter(
    servers: str,
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    all_brokers: bool,
    groups: tuple[str, ...],
    loggers: tuple[int, ...],
    to_set: tuple[str, ...],
    to_delete: tuple[str, ...],
    to_append: tuple[str, ...],
    to_subtract: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change keys while the broker runs. All changes of one topic, broker or group happen, or none.

    Changes are in effect when the command ends, and survive a restart (log levels do not).

    \b
    Examples:
      ottla configs alter --topic orders --set retention.ms=3600000
      ottla configs alter --topic orders --append cleanup.policy=compact
      ottla configs alter --topic orders --delete segment.bytes
      ottla configs alter --all-brokers --set log.retention.ms=86400000
      ottla configs alter --group billing --set consumer.session.timeout.ms=60000
      ottla configs alter --loggers 1 --set ottla.dispatch=DEBUG
    """
    from ottla.client import ConfigChange, ConfigResource

    changes = [
        *(ConfigChange.set(*_pair("--set", text)) for text in to_set),
        *(ConfigChange.delete(_key("--delete", name)) for name in to_delete),
        *(ConfigChange.append(*_pair("--append", text)) for text in to_append),
        *(ConfigChange.subtract(*_pair("--subtract", text)) for text in to_subtract),
    ]
    resources = [
        *(ConfigResource.topic(name) for name in topics),
        *(ConfigResource.broker(node_id) for node_id in brokers),
        *([ConfigResource.all_brokers()] if all_brokers else []),
        *(ConfigResource.group(name) for name in groups),
        *(ConfigResource.loggers(node_id) for node_id in loggers),
    ]
    if not resources:
        raise click.UsageError("name what to change: --topic, --broker, --all-brokers, --group or --loggers")
    if not changes:
        raise click.UsageError("say what to change: --set, --delete, --append or --subtract")
    _refuse_impossible_dead_letter_topic(resources, changes)
    warnings = with_admin(servers, "ottla-configs", _altering(resources, changes, validate_only=dry_run))
    _print_changes(list(dict.fromkeys(resources)), changes, dry_run=dry_run)
    for warning in warnings:
        click.echo(f"ottla: {one_line(warning)}", err=True)


def _altering(
    resources: Sequence[ConfigResource], changes: Sequence[ConfigChange], *, validate_only: bool
) -> Callable[[Admin], Awaitable[list[str]]]:
    """The work, which returns warnings about what brokers accept."""
    from ottla.client import AdminError

    async def work(admin: Admin) -> list[str]:
        try:
            await _refuse_unknown_deletions(admin, resources, changes)
            await admin.alter_configs(dict.fromkeys(resources, changes), validate_only=validate_only)
        except AdminError as refused:
            raise named_by_words(refused, resources) from None
        return await _about_dead_letters(admin, resources, changes)

    return work


def _refuse_impossible_dead_letter_topic(resources: Sequence[ConfigResource], changes: Sequence[ConfigChange]) -> None:
    """Refuse a name for the topic of dead letters that no topic can have: brokers, also Kafka's, accept it."""
    from ottla.client import ConfigOperation
    from ottla.client.admin_results import ConfigResourceType
    from ottla.storage.formats.layout import topic_name_problem

    groups = [one.name for one in resources if one.type is ConfigResourceType.GROUP]
    for change in changes:
        if groups and change.name == NAME_KEY and change.operation is ConfigOperation.SET and change.value:
            problem = topic_name_problem(change.value)
            if problem is not None:
                raise Failure(f"group {groups[0]}: {NAME_KEY}: {problem}")


async def _about_dead_letters(
    admin: Admin, resources: Sequence[ConfigResource], changes: Sequence[ConfigChange]
) -> list[str]:
    """What is wrong with the topic that the changes name for the dead letters of share groups."""
    from ottla.client import ConfigOperation
    from ottla.client.admin_results import ConfigResourceType
    from ottla.diagnosis.dead_letter_facts import dead_letter_facts_of
    from ottla.diagnosis.group_diagnosis import Weight
    from ottla.diagnosis.share_facts import texts_of

    changed = {one.name: one.value for one in changes if one.operation is ConfigOperation.SET}
    if not changed.keys() & {NAME_KEY, COPY_KEY}:
        return []
    lines: list[str] = []
    for resource in dict.fromkeys(resources):
        if resource.type is ConfigResourceType.GROUP:
            texts = {**await texts_of(admin, resource.name), **changed}
            facts = await dead_letter_facts_of(admin, resource.name, texts, ())
            for finding in diagnose_dead_letters(facts) if facts is not None else ():
                if finding.weight is not Weight.FINE:
                    lines.append(f"{resource_words(resource)}: {finding.text} -> {finding.remedy}")
    return lines


async def _refuse_unknown_deletions(
    admin: Admin, resources: Sequence[ConfigResource], changes: Sequence[ConfigChange]
) -> None:
    """Refuse to delete a key that the resource cannot have: brokers, also Kafka's, would report success."""
    from ottla.client import ConfigOperation, ConfigResource
    from ottla.client.admin_results import ConfigResourceType
    from ottla.config.resources import INTERNAL_KEYS

    deleted = [one.name for one in changes if one.operation is ConfigOperation.DELETE]
    if not deleted:
        return
    for resource in resources:
        if resource.type is ConfigResourceType.BROKER_LOGGER:  # brokers refuse this themselves
            continue
        asked = resource
        if resource == ConfigResource.all_brokers():  # a description of all brokers has only the keys that are set
            asked = ConfigResource.broker((await admin.describe_cluster()).brokers[0].node_id)
        known = (await admin.describe_configs([asked]))[asked]
        is_broker, is_group = (resource.type is one for one in (ConfigResourceType.BROKER, ConfigResourceType.GROUP))
        for key in deleted:
            is_hidden = (is_broker and key.startswith("listener.name.")) or (is_group and key in INTERNAL_KEYS)
            if key not in known and not is_hidden:
                near = difflib.get_close_matches(key, known, n=1)
                meant = f": did you mean {near[0]}?" if near else ""
                raise Failure(f"{key} is not a key of {resource_words(resource)}{meant}")
            if is_broker and key in known and known[key].is_read_only:
                raise Failure(f"{resource_words(resource)}: {key} cannot be changed while the broker runs")


def _print_changes(resources: Sequence[ConfigResource], changes: Sequence[ConfigChange], *, dry_run: bool) -> None:
    from ottla.client import ConfigOperation

    signs = {ConfigOperation.SET: "=", ConfigOperation.APPEND: "+=", ConfigOperation.SUBTRACT: "-="}
    words = [
        f"{one.name}{signs[one.operation]}{'[hidden]' if _is_secret(one.name) else one.value}"
        if one.operation in signs
        else f"{one.name} deleted"
        for one in changes
    ]
    for resource in resources:
        click.echo(f"{resource_words(resource)}: {', '.join(words)}{' (not done, only checked)' if dry_run else ''}")


def _is_secret(key: str) -> bool:
    """Whether values of the key are hidden. The value of an unknown key of a listener may be a secret, too."""
    from ottla.config.broker import ALL_BROKER_KEYS
    from ottla.config.on_listener import listener_option

    option = ALL_BROKER_KEYS.get(key) or listener_option(key)
    return key.startswith("listener.name.") if option is None else option.is_sensitive


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
    return _key(option, key), value


def _key(option: str, text: str) -> str:
    key = text.strip()
    if not key or "=" in key:
        raise click.BadParameter(f"{text!r} names no key", param_hint=option)
    return key
