"""`ottla log roll`, `ottla log retain` and `ottla log trust-clock`: requests to the HTTP port of a running broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from ottla.address import parse_server
from ottla.cli import probe
from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.parameters import NAME
from ottla.cli.partitions import require_partition
from ottla.cli.waiting import Waiting
from ottla.shown import counted, shown_bytes

DEFAULT_HTTP = "127.0.0.1:9644"
TIMEOUT_S = 60
MAX_ANSWER_BYTES = 64 * 1024 * 1024
WHERE = "the broker's address is its ottla.http.listener (--http)"

http_option = click.option(
    "--http",
    "address",
    default=DEFAULT_HTTP,
    show_default=True,
    metavar="HOST:PORT",
    help="The broker's ottla.http.listener; the broker logs the address when it starts.",
)


@click.command(short_help="Begin a new segment, on a running broker.")
@click.argument("partition", metavar="TOPIC-N")
@http_option
@click.option("--json", "as_json", is_flag=True, help="The broker's response, one JSON object.")
def roll(partition: str, address: str, as_json: bool) -> None:
    """Make the running broker begin a new segment of TOPIC-N, such as orders-0, although the active one is not full.

    Retention deletes whole segments only: rolling makes the existing records deletable. The broker accepts this only
    from its own machine, at its ottla.http.listener.

    \b
    Example:
      ottla log roll orders-0
    """
    answer = post(address, "/log/roll", {"partition": str(require_partition(partition))})
    if as_json:
        click.echo(json.dumps(answer))
    elif answer["is_rolled"]:
        click.echo(f"{answer['partition']}: a new segment begins at offset {answer['base_offset']}")
    else:
        click.echo(
            f"{answer['partition']}: the active segment, at offset {answer['base_offset']}, holds nothing to roll"
        )


@click.command(short_help="Apply retention now, on a running broker.")
@click.argument("topic", required=False, metavar="[TOPIC]", type=NAME)
@http_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per partition.")
def retain(topic: str | None, address: str, as_json: bool) -> None:
    """Make the running broker apply retention to TOPIC, or to all topics, without waiting for its next check.

    Nothing is deleted that retention.ms and retention.bytes would not delete anyway. The broker accepts this only
    from its own machine, at its ottla.http.listener.

    \b
    Examples:
      ottla log retain
      ottla log retain orders --json
    """
    answer = post(address, "/log/retain", {} if topic is None else {"topic": topic})["partitions"]
    with closed_pipe_ends_quietly():
        for one in answer:
            if as_json:
                click.echo(json.dumps(one))
            elif one["deleted_segments"]:
                click.echo(
                    f"{one['partition']}: {counted(len(one['deleted_segments']), 'segment')} deleted "
                    f"({shown_bytes(one['deleted_bytes'])}), the log starts at {one['log_start_offset']}"
                )
        if not as_json:
            deleted = sum(len(one["deleted_segments"]) for one in answer)
            click.echo(f"{counted(deleted, 'segment')} deleted, in {counted(len(answer), 'partition')}")


@click.command("trust-clock", short_help="Make a running broker trust its wall clock.")
@http_option
@click.option("--json", "as_json", is_flag=True, help="The broker's response, one JSON object.")
def trust_clock(address: str, as_json: bool) -> None:
    """Make the running broker trust its wall clock after a jump.

    Retention may then delete records that are too old by this clock.

    After a jump of more than ottla.clock.jump.max.ms, deletion by time waits, and the broker logs an ERROR line.
    The broker accepts this only from its own machine, at its ottla.http.listener.

    \b
    Example:
      ottla log trust-clock
    """
    answer = post(address, "/log/trust-clock", {})
    if as_json:
        click.echo(json.dumps(answer))
        return
    from ottla.storage.files.clock_trust import duration, shown

    wall, jump_ms = shown(answer["wall_ms"]), answer["jump_ms"]
    if answer["was_suspect"]:
        side = "ahead" if jump_ms > 0 else "behind"
        click.echo(f"{wall} is trusted now, {duration(abs(jump_ms))} {side} of what the broker knew")
    else:
        click.echo(f"{wall} was trusted already; nothing waits")


def post(address: str, path: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the broker's response. Raises Failure, also if the broker refuses the request."""
    from http.client import BadStatusLine, HTTPConnection, HTTPException, RemoteDisconnected
    from urllib.parse import urlencode

    try:
        host, port = parse_server(address.removeprefix("http://").rstrip("/"))  # as the broker logs it
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--http") from None
    connection = HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        target = f"{path}?{urlencode(fields)}" if fields else path
    except UnicodeEncodeError:  # these commands also accept names of files, which may be any bytes
        raise Failure(f"{', '.join(map(repr, fields.values()))} is not UTF-8: no topic has such a name") from None
    try:
        with Waiting(f"an answer of {address}"):
            connection.request("POST", target, headers={"Content-Length": "0", "X-Ottla": "1"})
            response = connection.getresponse()
            body = response.read(MAX_ANSWER_BYTES)
    except ConnectionRefusedError:
        raise Failure(f"nothing accepts connections at {address}; {WHERE}. {probe.IS_IT_RUNNING}") from None
    except TimeoutError:
        raise Failure(f"{address}: no answer within {TIMEOUT_S} s") from None
    except (RemoteDisconnected, BadStatusLine):  # perhaps the port of Kafka's clients
        raise Failure(f"{address}: what listens there speaks no HTTP; {WHERE}") from None
    except (OSError, HTTPException) as error:
        raise Failure(f"{address}: {getattr(error, 'strerror', None) or error}") from None
    finally:
        connection.close()
    if response.headers.get_content_type() != "application/json":
        words = body[:200].decode("utf-8", "replace").strip().partition("\n")[0]
        raise Failure(f"{address}: {words or 'no answer of an Ottla broker'}")
    try:
        answer: dict[str, Any] = json.loads(body)
    except ValueError:
        raise Failure(f"{address}: no answer of an Ottla broker") from None
    if response.status != 200:
        raise Failure(str(answer.get("error", f"{address}: {response.status} {response.reason}")))
    return answer
