"""`ottla serve`: runs the broker in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.cli.broker_options import override_option
from ottla.cli.failures import Failure, require_posix
from ottla.cli.parameters import FilePath
from ottla.cli.serving import DEFAULT_LOG_LEVEL, LOG_LEVELS, run_broker
from ottla.config.ours import PROFILE_NAMES


@click.command(short_help="Run the broker.")
@click.argument(
    "properties", required=False, type=FilePath(path_type=Path, readable=False), metavar="[SERVER.PROPERTIES]"
)
@override_option("Set a key; overrides the file and the environment.")
@click.option(
    "--add-scram",
    "scram_users",
    multiple=True,
    metavar="MECHANISM=[name=NAME,password=PASSWORD]",
    help="A SCRAM user with which a new data directory begins, as in kafka-storage; sets ottla.add.scram. Other users "
    "of the machine can read command lines; the variable OTTLA_ADD_SCRAM they cannot. May be repeated.",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILE_NAMES),
    help="Serve the API versions of one release of Kafka; sets ottla.profile.",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default=DEFAULT_LOG_LEVEL,
    show_default=True,
    help="The level of the log on standard error.",
)
@click.option(
    "--ready-line",
    metavar="TEXT",
    help="Print this line, too, when clients are accepted: for programs that wait for another broker's line.",
)
def serve(
    properties: Path | None,
    overrides: tuple[str, ...],
    scram_users: tuple[str, ...],
    profile: str | None,
    log_level: str,
    ready_line: str | None,
) -> None:
    """Run the broker until Ctrl-C or SIGTERM. A second one stops it without waiting for requests in flight.

    SERVER.PROPERTIES is a file in Kafka's format. The defaults are: all addresses, port 9092, data in ./data.
    Environment variables as in Kafka's image (KAFKA_LOG_RETENTION_MS) override the file. All keys are in
    docs/configuration.md.

    \b
    Examples:
      ottla serve
      ottla serve --override log.dirs=/tmp/try --override num.partitions=4
      KAFKA_NUM_PARTITIONS=4 ottla serve server.properties
      ottla serve --profile kafka-2.8
    """
    require_posix("ottla serve")
    from ottla.config.errors import ConfigError

    if scram_users:
        overrides = (*overrides, f"ottla.add.scram={' '.join(scram_users)}")
    try:
        status = run_broker(properties, overrides, profile, log_level, ready_line)
    except ConfigError as error:
        raise Failure(str(error)) from None
    raise SystemExit(status)
