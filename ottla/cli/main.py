"""`ottla`: the root of the command line.

A command is imported when it runs, and not before, so that `ottla --help` and a mistyped command answer quickly. The
list of commands with their one-line help is therefore here.
"""

from __future__ import annotations

import os

import click

from ottla.cli.lazy import LazyGroup
from ottla.version import __version__


def _print_version(context: click.Context, _: click.Parameter | None, is_asked: bool) -> None:
    if not is_asked or context.resilient_parsing:
        return
    click.echo(f"Ottla {__version__}")
    context.exit()


class _Root(LazyGroup):
    """All commands; `version` is --version."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See LazyGroup."""
        _print_version(ctx, None, args[:1] == ["version"])
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Root,
    commands_by_name={
        "serve": ("ottla.cli.serve:serve", "Run the broker."),
        "run": ("ottla.cli.run:run", "Run a command, such as tests, beside a broker of its own."),
        "topics": ("ottla.cli.topics:topics", "Create, list, describe, alter and delete topics, and delete records."),
        "produce": ("ottla.cli.produce:produce", "Write lines from standard input to a topic."),
        "consume": ("ottla.cli.consume:consume", "Write a topic's records to standard output."),
        "console": ("ottla.cli.console:console", "Show topics, records and groups in a browser."),
        "registry": ("ottla.cli.registry:registry", "Serve a schema registry, for Avro, JSON Schema and Protobuf."),
        "groups": ("ottla.cli.groups:groups", "Describe, diagnose, reset and delete groups, also share groups."),
        "transactions": (
            "ottla.cli.transactions:transactions",
            "List, describe and abort transactions; find hanging ones.",
        ),
        "tokens": ("ottla.cli.tokens:tokens", "List, create, renew and expire delegation tokens."),
        "users": ("ottla.cli.users:users", "List, add and delete users (SCRAM)."),
        "configs": ("ottla.cli.configs:configs", "Show and change the configuration of topics, brokers and groups."),
        "acls": ("ottla.cli.acls:acls", "List, add and delete ACLs: who may do what."),
        "quotas": ("ottla.cli.quotas:quotas", "Show, set and remove quotas of users, client ids and addresses."),
        "features": ("ottla.cli.features:features", "Show, raise and lower the levels of features."),
        "config": ("ottla.cli.config:config", "Show the configuration that serve would start with."),
        "log": (
            "ottla.cli.log:log",
            "Read and repair the log files on disk; roll, retain and clean on a running broker.",
        ),
        "tls": ("ottla.cli.tls:tls", "Make certificates for TLS, for tests and small networks."),
        "ping": ("ottla.cli.ping:ping", "Ask whether a broker answers."),
        "completion": ("ottla.cli.completion:completion", "Print the script that completes commands in a shell."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Kafka on one machine: a broker that you install with pip.

    `ottla COMMAND --help` lists the options of a command.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":  # https://no-color.org; click asks the terminal
        click.get_current_context().color = False
