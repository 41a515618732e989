"""`ottla acls`: lists, adds and deletes ACLs. The options are those of Kafka's kafka-acls.

`--producer` and `--consumer` mean the operations that such a client needs, as in kafka-acls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli import suggestions
from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import NAME, Choice
from ottla.cli.questions import ask
from ottla.cli.show import one_line
from ottla.cli.tables import table_lines
from ottla.protocol.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)

if TYPE_CHECKING:
    from ottla.client import Acl, AclFilter

_F = TypeVar("_F", bound=Callable[..., object])


def _word(number: IntEnum) -> str:
    return number.name.lower().replace("_", "-")


_NAMES = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
_OPERATIONS = {_word(one): one for one in AclOperation if one > AclOperation.ANY}
_RESOURCES = {
    "topics": ResourceType.TOPIC,
    "groups": ResourceType.GROUP,
    "transactional_ids": ResourceType.TRANSACTIONAL_ID,
    "delegation_tokens": ResourceType.DELEGATION_TOKEN,
    "user_principals": ResourceType.USER,
}
"""The options that name resources."""


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "list": ("ottla.cli.acls:list_acls", "List ACLs."),
        "add": ("ottla.cli.acls:add", "Add ACLs."),
        "delete": ("ottla.cli.acls:delete", "Delete ACLs."),
    },
    short_help="List, add and delete ACLs: who may do what.",
)
def acls() -> None:
    """List, add and delete ACLs: which user may do what with which topic, group, transactional id or the cluster.

    The broker needs authorizer.class.name for that (docs/security.md).
    """


def _resource_options(command: _F) -> _F:
    options = [
        click.option(
            "-t",
            "--topic",
            "topics",
            multiple=True,
            metavar="TOPIC",
            type=NAME,
            shell_complete=suggestions.topics,
            help="A topic.",
        ),
        click.option(
            "-g",
            "--group",
            "groups",
            multiple=True,
            metavar="GROUP",
            type=NAME,
            shell_complete=suggestions.groups,
            help="A group.",
        ),
        click.option("--transactional-id", "transactional_ids", multiple=True, help="A transactional id."),
        click.option("--delegation-token", "delegation_tokens", multiple=True, help="A delegation token."),
        click.option("--user-principal", "user_principals", multiple=True, help="A user, as a resource."),
        click.option("--cluster", is_flag=True, help="The cluster."),
    ]
    return reduce(lambda made, option: option(made), reversed(options), command)


def _entry_options(command: _F) -> _F:
    options = [
        click.option(
            "--allow-principal",
            "allowed",
            multiple=True,
            metavar="User:NAME",
            help="A user that may; User:* is all.",
        ),
        click.option("--deny-principal", "denied", multiple=True, metavar="User:NAME", help="A user that may not."),
        click.option(
            "--allow-host",
            "allowed_hosts",
            multiple=True,
            metavar="ADDRESS",
            help="Only from this address, or range of addresses (10.1.0.0/16).",
        ),
        click.option(
            "--deny-host",
            "denied_hosts",
            multiple=True,
            metavar="ADDRESS",
            help="Only from this address, or range of addresses.",
        ),
        click.option(
            "--operation",
            "operations",
            multiple=True,
            type=Choice(list(_OPERATIONS)),
            metavar="OPERATION",
            help="What, as read, describe-configs, idempotent-write; all, if not given.",
        ),
        click.option("--producer", is_flag=True, help="What a producer needs: write, describe and create its topics."),
        click.option(
            "--consumer", is_flag=True, help="What a consumer needs: read and describe its topics, read its groups."
        ),
        click.option(
            "--idempotent", is_flag=True, help="With --producer: idempotent-write, too, for brokers before Kafka 2.8."
        ),
    ]
    return reduce(lambda made, option: option(made), reversed(options), command)


def _named(given: dict[str, Any]) -> Iterator[tuple[ResourceType, str]]:
    """The resources that the options name."""
    for option, resource_type in _RESOURCES.items():
        for name in given[option]:
            yield resource_type, name
    if given["cluster"]:
        yield ResourceType.CLUSTER, CLUSTER_NAME


# --- list --------------------------------------------------------------------------------------------------------


@click.command("list")
@_resource_options
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(["any", "match", "literal", "prefixed"]),
    default="any",
    show_default=True,
    metavar="TYPE",
    help="literal, prefixed, any, or match: all that count for a resource of the name.",
)
@click.option("--principal", "principals", multiple=True, metavar="User:NAME", help="Only those of this principal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@bootstrap_server
def list_acls(servers: str, pattern: str, principals: Sequence[str], as_json: bool, **given: Any) -> None:
    """List all ACLs, or those of the resources and principals that are named.

    \b
    Example:
      ottla acls list --topic orders --resource-pattern-type match
    """
    filters = list(_filters(given, pattern, principals))

    async def work(admin: Any) -> list[Acl]:
        found: dict[Acl, None] = {}
        for one in filters:
            found.update(dict.fromkeys(await admin.describe_acls(one)))
        return list(found)

    _print(with_admin(servers, "ottla-acls", work), as_json=as_json)


def _filters(given: dict[str, Any], pattern: str, principals: Sequence[str]) -> Iterator[AclFilter]:
    from ottla.client import AclFilter

    resources: list[tuple[ResourceType, str | None]] = [*_named(given)]
    for resource_type, name in resources or [(ResourceType.ANY, None)]:
        for principal in principals or (None,):
            yield AclFilter(resource_type, name, PatternType[pattern.upper()], principal)


def _print(found: Sequence[Acl], *, as_json: bool) -> None:
    rows = sorted(
        (
            _word(one.resource_type),
            one.resource_name,
            one.pattern_type.name.lower(),
            one.principal,
            one.host,
            _word(one.operation),
            one.permission.name.lower(),
        )
        for one in found
    )
    with closed_pipe_ends_quietly():
        if as_json:
            for row in rows:
                click.echo(json.dumps(dict(zip(_NAMES, row, strict=True))))
        elif rows:
            click.echo("\n".join(table_lines([list(row) for row in rows], _NAMES)))


# --- add ---------------------------------------------------------------------------------------------------------


@click.command()
@_entry_options
@_resource_options
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(["literal", "prefixed"]),
    default="literal",
    show_default=True,
    metavar="TYPE",
    help="literal, or prefixed: names are beginnings of names.",
)
@bootstrap_server
def add(servers: str, pattern: str, **given: Any) -> None:
    """Add ACLs: each principal, host, operation and resource with each other.

    \b
    Examples:
      ottla acls add --allow-principal User:alice --operation read --topic orders
      ottla acls add --allow-principal User:app --producer --topic app- \\
          --resource-pattern-type prefixed
      ottla acls add --deny-principal 'User:*' --deny-host 10.0.0.7 --cluster
    """
    from ottla.client import Acl

    kind = PatternType[pattern.upper()]
    made = [
        Acl(
            *resource,
            principal=who,
            operation=operation,
            permission=permission,
            host=host,
            pattern_type=PatternType.LITERAL if resource[0] is ResourceType.CLUSTER else kind,
        )
        for resource, operation, permission, who, host in _entries(**given)
    ]
    with_admin(servers, "ottla-acls", lambda admin: admin.create_acls(made))
    for one in made:
        click.echo(f"added: {one_line(str(one))}")


def _entries(
    allowed: Sequence[str],
    denied: Sequence[str],
    allowed_hosts: Sequence[str],
    denied_hosts: Sequence[str],
    operations: Sequence[str],
    producer: bool,
    consumer: bool,
    idempotent: bool,
    **given: Any,
) -> list[tuple[tuple[ResourceType, str], AclOperation, PermissionType, str, str]]:
    """The ACLs that the options of `_entry_options` and `_resource_options` describe; at least one."""
    whom = [(PermissionType.ALLOW, who, host) for who in allowed for host in allowed_hosts or (WILDCARD,)]
    whom += [(PermissionType.DENY, who, host) for who in denied for host in denied_hosts or (WILDCARD,)]
    if not whom:
        raise click.UsageError("Give --allow-principal or --deny-principal.")
    if (allowed_hosts and not allowed) or (denied_hosts and not denied):
        raise click.UsageError("A host needs a principal: --allow-host with --allow-principal, and so for deny.")
    if idempotent and not producer:
        raise click.UsageError("--idempotent needs --producer.")
    resources = list(_named(given))
    if not resources:
        raise click.UsageError("Name a resource: --topic, --group, --cluster, --transactional-id, ...")
    if producer or consumer:
        if denied or operations:
            raise click.UsageError("--producer and --consumer name the operations, and only allow.")
        rights = list(_rights_of_clients(resources, producer=producer, consumer=consumer))
        if idempotent:
            rights.append(((ResourceType.CLUSTER, CLUSTER_NAME), AclOperation.IDEMPOTENT_WRITE))
    else:
        chosen = [_OPERATIONS[name.lower()] for name in operations] or [AclOperation.ALL]
        rights = [(resource, operation) for resource in resources for operation in chosen]
        _check_operations(rights)
    return [(*right, *one) for right in rights for one in whom]


def _rights_of_clients(
    resources: Sequence[tuple[ResourceType, str]], *, producer: bool, consumer: bool
) -> Iterator[tuple[tuple[ResourceType, str], AclOperation]]:
    """The rights of producers and consumers, as in Kafka's `AclCommand`."""
    kinds = {resource_type for resource_type, _ in resources}
    if ResourceType.TOPIC not in kinds:
        raise click.UsageError("--producer and --consumer need --topic.")
    if consumer and ResourceType.GROUP not in kinds:
        raise click.UsageError("--consumer needs --group.")
    wanted: dict[ResourceType, dict[AclOperation, None]] = {}
    if producer:
        wanted[ResourceType.TOPIC] = dict.fromkeys([AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE])
        wanted[ResourceType.TRANSACTIONAL_ID] = dict.fromkeys([AclOperation.WRITE, AclOperation.DESCRIBE])
    if consumer:
        wanted.setdefault(ResourceType.TOPIC, {}).update(dict.fromkeys([AclOperation.READ, AclOperation.DESCRIBE]))
        wanted[ResourceType.GROUP] = {AclOperation.READ: None}
    for resource in resources:
        if resource[0] not in wanted:
            raise click.UsageError(f"--producer and --consumer have nothing to do with {_shown(resource[0])}.")
        for operation in wanted[resource[0]]:
            yield resource, operation


def _check_operations(rights: Sequence[tuple[tuple[ResourceType, str], AclOperation]]) -> None:
    for (resource_type, _), operation in rights:
        supported = SUPPORTED_OPERATIONS[resource_type]
        if operation is not AclOperation.ALL and operation not in supported:
            names = ", ".join(map(_word, supported))
            what = f"{_word(operation)} is not an operation of {_shown(resource_type)}"
            raise click.UsageError(f"{what}: there are all, {names}.")


def _shown(resource_type: ResourceType) -> str:
    return f"a {_word(resource_type)}"


# --- delete ------------------------------------------------------------------------------------------------------


@click.command()
@_entry_options
@_resource_options
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(["any", "match", "literal", "prefixed"]),
    default="literal",
    show_default=True,
    metavar="TYPE",
    help="literal, prefixed, any, or match: all that count for a resource of the name.",
)
@click.option("--principal", "principals", multiple=True, metavar="User:NAME", help="All of this principal.")
@click.option("-y", "--yes", "--force", "yes", is_flag=True, help="Do not ask.")
@bootstrap_server
def delete(servers: str, pattern: str, principals: Sequence[str], yes: bool, **given: Any) -> None:
    """Delete the ACLs of the resources and principals that are named, after a question.

    With the options of add: delete the ACLs that add would make with them.

    \b
    Examples:
      ottla acls delete --topic orders --principal User:alice
      ottla acls delete --topic orders --deny-principal User:bob --operation read
    """
    filters = list(_doomed(pattern, principals, given))
    if not yes:

        async def found(admin: Any) -> list[Acl]:
            return [one for asked in filters for one in await admin.describe_acls(asked)]

        there = with_admin(servers, "ottla-acls", found)
        if not there:
            click.echo("no ACL matches", err=True)
            return
        for one in there:
            click.echo(one_line(str(one)))
        ask("Delete these?", otherwise="nothing is deleted", takes_input=True)
    gone = with_admin(servers, "ottla-acls", lambda admin: admin.delete_acls(filters))
    for one in gone:
        click.echo(f"deleted: {one_line(str(one))}")
    if not gone:
        click.echo("no ACL matches", err=True)


_ENTRY_OPTIONS = (
    "allowed",
    "denied",
    "allowed_hosts",
    "denied_hosts",
    "operations",
    "producer",
    "consumer",
    "idempotent",
)


def _doomed(pattern: str, principals: Sequence[str], given: dict[str, Any]) -> Iterator[AclFilter]:
    from ottla.client import AclFilter

    if not any(given[option] for option in _ENTRY_OPTIONS):
        if not principals and not list(_named(given)):
            raise click.UsageError("Name a resource or a principal: without them all ACLs would be deleted.")
        yield from _filters(given, pattern, principals)
        return
    if principals:
        raise click.UsageError(
            "--principal cannot be used with the options of add: it names all ACLs of the principal."
        )
    for resource, operation, permission, who, host in _entries(**given):
        yield AclFilter(*resource, PatternType[pattern.upper()], who, host, operation, permission)
