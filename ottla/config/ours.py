"""Ottla's own keys. All begin with `ottla.`, so that they never collide with a key of Kafka."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.config.declare import boolean, choice, int32, int64, parsed, password, string
from ottla.config.listeners import parse_optional_address, show_optional_address
from ottla.config.options import ConfigType, Options

if TYPE_CHECKING:
    from ottla.config.created_topics import CreatedTopic


class Promises(Options):
    """Ottla: promises of an acknowledgement, and checks of a batch."""

    ottla_acks_all = choice(
        "sync",
        "sync",
        "page-cache",
        dynamic=True,
        doc="When acks=all is answered: `sync`, when the bytes are on disk (one sync covers all waiting requests), or "
        "`page-cache`, when the operating system has them, as in Kafka with one replica. Consumers see records from "
        "the same moment on.",
    )
    ottla_syncfs_enable = boolean(
        True,
        doc="Whether a sync of several partitions may be one `syncfs` of their file system, where the kernel reports "
        "all its errors. That also flushes the data of other programs on the same file system, and their errors take "
        "the log directory offline. `false` syncs the partitions' files only: for a disk that is shared.",
    )
    ottla_redo_log_enable = boolean(
        True,
        doc="Whether a sync of several partitions with little to write may be a sync of one file, `ottla-redo.log` in "
        "the log directory, which has the same bytes. The partitions' files are synced some seconds later, and a start "
        "after a power cut writes the missing bytes into them. `false` syncs the partitions' files each time: for a "
        "directory that another program opens after a power cut, before Ottla does.",
    )
    ottla_sync_main_thread_enable = boolean(
        True,
        doc="Whether the broker's main thread waits for a sync of `ottla-redo.log` itself where a single client sends "
        "and waits for each answer, as long as the disk syncs in less than half a millisecond. That saves two wake-ups "
        "of threads. If such a disk stalls, no client is answered until the sync has ended, and threads sync after "
        "that. `false` leaves all syncs to threads: for a disk that may hang, such as a network disk.",
    )
    ottla_validate_records = boolean(
        False,
        dynamic=True,
        doc="Whether every record of a batch is checked before it is stored, as in Kafka. Otherwise only the "
        "batch's header and checksum are checked.",
    )
    ottla_batch_max_decompressed_bytes = int32(
        268435456,
        at_least=1024,
        dynamic=True,
        doc="Most bytes that one batch may decompress to where the broker has to look inside. Where it is not set and "
        "memory is limited (a cgroup, `ulimit -d`): at most a sixteenth of it.",
    )
    ottla_replication_factor_lenient = boolean(
        False,
        dynamic=True,
        doc="Whether a request may name a replication factor above 1 for a topic, which then counts as 1. Otherwise it"
        " is refused.",
    )
    ottla_max_partitions = int32(
        20000,
        at_least=1,
        dynamic=True,
        doc="Partitions that this broker holds at most, over all topics. Creating more is refused.",
    )
    ottla_acls_max = int32(
        20000, at_least=0, dynamic=True, doc="ACLs that this broker holds at most. Creating more is refused."
    )


def _cluster_id(text: str) -> str:
    if text and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text):
        raise ValueError("must be at most 64 letters, digits, '_' and '-', or empty")
    return text


class WallClock(Options):
    """Ottla: how far the wall clock is trusted (docs/clock.md)."""

    ottla_clock_jump_max_ms = int64(
        3600000,
        at_least=-1,
        dynamic=True,
        doc="By how much the wall clock may move against the boot clock, or at a start against the newest time known "
        "from the disk, before deletion by time waits. -1: the wall clock is always trusted.",
    )
    ottla_clock_trust_after_ms = int64(
        86400000,
        at_least=0,
        dynamic=True,
        doc="How long a wall clock that has jumped must run without another jump, while the broker runs, until it is "
        "trusted and used for deletion by time. `ottla log trust-clock` trusts it immediately.",
    )


PROFILE_NAMES = ("default", "kafka-4.4", "kafka-4.1", "kafka-4.0", "kafka-3.9", "kafka-2.8")
"""Values of `ottla.profile`; what they mean: ottla/broker/profiles/profiles.py."""


def _scram_users(text: str) -> str:
    if not text:
        return text
    from ottla.config.scram_users import check_scram_users  # imported only where it is set

    return check_scram_users(text)


def _created_topics(text: str) -> tuple[CreatedTopic, ...]:
    if not text:
        return ()
    from ottla.config.created_topics import parse_created_topics  # imported only where it is set

    return parse_created_topics(text)


def _show_created_topics(topics: object) -> str:
    if not topics:
        return ""
    from ottla.config.created_topics import show_created_topics

    return show_created_topics(topics)


class Limits(Options):
    """Ottla: limits and service."""

    ottla_profile = choice(
        "default",
        *PROFILE_NAMES,
        doc="The versions that clients see: `default`, those of Kafka 4.4 and all older ones that Ottla has; or those "
        "of one release, as far as Ottla has them, for testing clients against it (docs/compatibility.md).",
    )
    ottla_cluster_id = string(
        "",
        check=_cluster_id,
        allowed="an id, or empty",
        doc="Cluster id of new directories; a directory with another one is refused. Empty: that of the directories, "
        "or a new one. The environment variable `CLUSTER_ID` of Kafka's image sets it, too.",
    )

    ottla_http_listener = parsed(
        "127.0.0.1:9644",
        parse_optional_address,
        kind=ConfigType.STRING,
        allowed="host:port, or empty",
        show=show_optional_address,
        doc="Where `/livez`, `/readyz`, `/metrics` and, for this machine only, `ottla log roll` and "
        "the like are served, as host:port; empty for nowhere. If another process, such as a second broker, uses the "
        "default address, the broker logs a WARNING and has no HTTP port; if it uses an address that was set, the "
        "start is refused. `:9644` serves other machines, too; there is no password. "
        "On a loopback address a request whose `Host` is a name with a dot that is not set here is refused (421): a "
        "web page may have sent it.",
    )
    ottla_metrics_group_lag_max_series = int32(
        10000,
        at_least=0,
        dynamic=True,
        doc="Most lines of `ottla_group_lag` in `/metrics`, one per group, topic and partition with a commit; "
        "of more, groups with members come first, and `ottla_group_lag_omitted` says how many are left out. 0: none.",
    )
    ottla_connection_max_pending_requests = int32(
        512, at_least=1, doc="Requests of one connection that may wait for an answer before reading from it pauses."
    )
    ottla_connection_max_pending_bytes = int64(
        67108864, at_least=1024, doc="Bytes of unsent answers of one connection at which reading from it pauses."
    )
    ottla_connections_max_unsent_bytes = int64(
        268435456,
        at_least=1048576,
        doc="Bytes of answers in memory, over all connections. They are counted before data is read or converted for "
        "an answer, until the client has taken it. Reads that find no room wait; then the connection that has not "
        "taken its answers for longest is closed. Bytes that the kernel sends from the page cache do not count. Where "
        "it is not set and memory is limited (a cgroup, `ulimit -d`): at most a quarter of it.",
    )
    ottla_add_scram = password(
        check=_scram_users,
        doc="SCRAM users of a new data directory, in the syntax of `kafka-storage format --add-scram`: "
        "`SCRAM-SHA-256=[name=alice,password=...]`, several with blanks between them. `ottla serve --add-scram` sets "
        "it. It has no effect on a directory that is not new.",
    )
    ottla_create_topics = parsed(
        "",
        _created_topics,
        kind=ConfigType.STRING,
        allowed="topics as name:partitions:replicas:settings, or empty",
        show=_show_created_topics,
        doc="Topics that a start creates before clients are accepted, unless they exist: `orders:3,users:1:1:compact`. "
        "An entry is `name`, then, each after a colon, the number of partitions, that of replicas, which is 1, and "
        "settings: `retention.ms=60000`, or a cleanup policy. A semicolon between entries, or after the last one, "
        "leaves commas to values: `users:1:1:compact,delete;`. An existing topic is left as it is, with a warning if "
        "it has another number of partitions. An entry that CreateTopics would refuse is refused with the start, and "
        "no topic is created then.",
    )
    ottla_handshake_timeout_ms = int64(
        30000,
        at_least=1,
        doc="A connection that has not finished its TLS handshake, or its login, is closed after this time.",
    )
    ottla_sasl_jwks_timeout_ms = int64(
        10000,
        at_least=1,
        doc="A read of `sasl.oauthbearer.jwks.endpoint.url` that is not done after this time is given up, no matter "
        "how fast the server sends.",
    )
    ottla_tls_reload_interval_ms = int64(
        10000,
        at_least=1,
        doc="Interval at which the files of key and trust stores are checked for changes; new connections use the "
        "new content.",
    )
    ottla_partial_frame_timeout_ms = int64(
        30000, at_least=1, doc="A connection whose request is still incomplete after this time is closed."
    )
    ottla_shutdown_timeout_ms = int64(
        10000, doc="How long a stop waits for requests in progress before connections are closed."
    )
    ottla_shutdown_close_timeout_ms = int64(
        45000,
        doc="How long a stop may take to sync and close the logs, after the requests. Logs that are still open then"
        " are closed as they are: nothing acknowledged is lost, and the next start recovers them as after a kill.",
    )
    ottla_log_max_open_segments = int32(
        1024,
        at_least=16,
        doc="Segments whose files are kept open and mapped, over all logs; the least recently used are closed first.",
    )
    ottla_log_dir_reserve_inodes = int64(
        -1,
        at_least=-1,
        dynamic=True,
        doc="Inodes to keep free on the volume of each log directory, as `ottla.log.dir.reserve.bytes` keeps bytes."
        " -1: 5 % of the volume's, 1,000 at most; 0: none. Where a file system does not count them, none are kept.",
    )
    ottla_log_dir_reserve_bytes = int64(
        -1,
        at_least=-1,
        dynamic=True,
        doc="Bytes to keep free on the volume of each log directory. With less, records are refused; with less than "
        "half, offset commits, too, so that there is room for operations that free space (docs/durability.md). -1: 5 % "
        "of the volume, 1 GiB at most; 0: none, writes are refused when the disk is full to the last byte.",
    )
    ottla_disk_full_probe_interval_ms = int64(5000, at_least=1, doc="How often a full directory is tried again.")
