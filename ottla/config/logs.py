"""Keys about the log on disk: directories, segments, retention, flushing, timestamps, compression, compaction."""

from __future__ import annotations

from ottla.config.declare import LONG_MAX, boolean, choice, double, finer, int32, int64, maybe_int32, words, words_or
from ottla.config.options import Options

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


def _small_segment(value: object) -> str:
    small = isinstance(value, int) and value < 1 << 20
    return "Apache Kafka 4 refuses segments of less than 1 MiB (1048576)" if small else ""


def _no_cleanup(value: object) -> str:
    return "" if value else "neither delete nor compact: every record is kept for ever"


class Directories(Options):
    """Directories, checkpoints and recovery."""

    log_dir = words(
        ("./data",),
        at_least_one=True,
        kafka="/tmp/kafka-logs",
        doc="Data directory, where `log.dirs` is not set.",
    )
    log_dirs = words_or(log_dir, doc="Data directories. A new partition goes to the one that holds the fewest.")
    cordoned_log_dirs = words(
        (),
        dynamic=True,
        doc="Directories of `log.dirs` that take no new partitions (KIP-1066); `*`: all of them. Partitions that are "
        "there stay, and are served.",
    )
    num_recovery_threads_per_data_dir = int32(
        2, at_least=1, dynamic=True, doc="Threads that load the logs of a directory at start."
    )
    log_flush_offset_checkpoint_interval_ms = int32(
        60000, doc="How often `recovery-point-offset-checkpoint` is written. Start-up checks what is after it."
    )
    log_flush_start_offset_checkpoint_interval_ms = int32(
        60000, doc="How often `log-start-offset-checkpoint` is written."
    )
    replica_high_watermark_checkpoint_interval_ms = int64(
        5000, doc="How often `replication-offset-checkpoint` is written."
    )
    metadata_log_dir = words(
        (),
        as_text=True,
        kafka="(the first of log.dirs)",
        inert="the metadata log is in the first of `log.dirs`",
        doc="Directory of the metadata log.",
    )
    metadata_log_max_record_bytes_between_snapshots = int64(
        20971520, at_least=1, doc="Bytes of metadata records after which a snapshot is written."
    )
    metadata_log_max_snapshot_interval_ms = int64(
        _HOUR_MS, doc="Longest time between snapshots of the metadata, if it has changed; 0 for no such limit."
    )


class Segments(Options):
    """Segments and indexes."""

    log_segment_bytes = int32(
        1 << 30,
        at_least=1024,
        dynamic=True,
        unusual=_small_segment,
        doc="Size in bytes at which a segment is rolled. Apache Kafka 4 allows no less than 1048576; Ottla allows"
        " 1024, with a warning.",
    )
    log_roll_hours = int32(168, at_least=1, doc="Age in hours at which a segment is rolled even if small.")
    log_roll_ms = finer(
        (log_roll_hours, _HOUR_MS),
        at_least=1,
        dynamic=True,
        doc="Age in milliseconds, by the records' time, at which a segment is rolled even if small.",
    )
    log_roll_jitter_hours = int32(0, doc="Most hours by which `log.roll.hours` is reduced, at random.")
    log_roll_jitter_ms = finer(
        (log_roll_jitter_hours, _HOUR_MS),
        dynamic=True,
        doc="Most milliseconds by which the age at which a segment is rolled is reduced, at random, so that segments "
        "do not all roll at the same time.",
    )
    log_index_interval_bytes = int32(4096, dynamic=True, doc="Bytes of log between two entries of its indexes.")
    log_index_size_max_bytes = int32(
        10485760, at_least=4, dynamic=True, doc="Size in bytes at which a full index rolls the segment."
    )
    log_preallocate = boolean(
        False,
        dynamic=True,
        inert="log files are never preallocated",
        doc="Whether new log files are allocated with their full size.",
    )


class Retention(Options):
    """Retention."""

    log_cleanup_policy = words(
        ("delete",),
        "delete",
        "compact",
        dynamic=True,
        unusual=_no_cleanup,
        doc="What happens to old records: `delete` removes old segments, `compact` keeps the newest record of "
        "each key. Empty: every record is kept.",
    )
    log_retention_hours = int32(168, at_least=-1, doc="Hours for which records are kept; -1 for ever.")
    log_retention_minutes = maybe_int32(
        at_least=-1, doc="Minutes for which records are kept; wins over `log.retention.hours`."
    )
    log_retention_ms = finer(
        (log_retention_minutes, _MINUTE_MS),
        (log_retention_hours, _HOUR_MS),
        at_least=-1,
        dynamic=True,
        doc="Milliseconds for which records are kept, by the newest record of a segment; -1 for ever. Wins over "
        "minutes and hours.",
    )
    log_retention_bytes = int64(
        -1, at_least=-1, dynamic=True, doc="Bytes to which a partition is reduced; -1 for no limit."
    )
    log_retention_check_interval_ms = int64(300000, at_least=1, doc="How often the broker checks for old segments.")
    log_segment_delete_delay_ms = int64(
        60000, dynamic=True, doc="How long a deleted segment stays on disk, renamed to `.deleted`."
    )


class Durability(Options):
    """Flushing. `ottla.acks.all` says what an acknowledgement means; these keys add syncs to it."""

    log_flush_interval_messages = int64(LONG_MAX, at_least=1, dynamic=True, doc="Records after which a log is synced.")
    log_flush_scheduler_interval_ms = int64(LONG_MAX, doc="How often the broker checks for logs to sync.")
    log_flush_interval_ms = finer(
        (log_flush_scheduler_interval_ms, 1), dynamic=True, doc="Longest time for which a record stays unsynced."
    )


class Records(Options):
    """Records."""

    message_max_bytes = int32(1048588, dynamic=True, doc="Largest batch, as compressed by the producer.")
    compression_type = choice(
        "producer",
        "producer",
        "uncompressed",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
        dynamic=True,
        doc="Compression of what is stored. `producer` keeps that of the producer.",
    )
    compression_gzip_level = int32(
        -1,
        at_least=-1,
        at_most=9,
        excluded=0,
        dynamic=True,
        doc="Level of gzip, 1 to 9, when the broker compresses; -1 for gzip's own.",
    )
    compression_lz4_level = int32(
        9, at_least=1, at_most=17, dynamic=True, doc="Level of lz4 when the broker compresses."
    )
    compression_zstd_level = int32(
        3, at_least=-131072, at_most=22, dynamic=True, doc="Level of zstd when the broker compresses."
    )
    log_message_timestamp_type = choice(
        "CreateTime",
        "CreateTime",
        "LogAppendTime",
        dynamic=True,
        doc="Timestamp of a record: the producer's (CreateTime) or the broker's (LogAppendTime).",
    )
    log_message_timestamp_before_max_ms = int64(
        LONG_MAX, dynamic=True, doc="How far a record's timestamp may be before the time of the broker's clock."
    )
    log_message_timestamp_after_max_ms = int64(
        _HOUR_MS, dynamic=True, doc="How far a record's timestamp may be after the time of the broker's clock."
    )
    producer_id_expiration_ms = int32(
        86400000, at_least=1, dynamic=True, doc="How long an idle producer is remembered, to detect its duplicates."
    )
    producer_id_expiration_check_interval_ms = int32(
        600000, at_least=1, doc="How often the broker checks for idle producers."
    )


class Cleaner(Options):
    """Compaction."""

    log_cleaner_enable = boolean(True, doc="Whether compaction runs. `ottla log clean` works without it, too.")
    log_cleaner_threads = int32(
        1, inert="there is one cleaner, which works beside the requests", dynamic=True, doc="Threads that compact."
    )
    log_cleaner_dedupe_buffer_size = int64(
        134217728,
        at_least=1024,
        dynamic=True,
        doc="Bytes for the map of keys, 24 for each. More keys need another cleaning. Where it is not set and memory "
        "is limited (a cgroup, `ulimit -d`): at most a sixteenth of it.",
    )
    log_cleaner_io_buffer_size = int32(
        524288, inert="one MiB is read at a time, or a batch", dynamic=True, doc="Bytes of buffers of the cleaner."
    )
    log_cleaner_io_buffer_load_factor = double(0.9, at_most=1.0, dynamic=True, doc="How full the map of keys may be.")
    log_cleaner_io_max_bytes_per_second = double(
        1.7976931348623157e308, dynamic=True, doc="Bytes per second that the cleaner may read and write."
    )
    log_cleaner_backoff_ms = int64(
        15000, at_least=1, dynamic=True, doc="Pause of the cleaner when there is nothing to do."
    )
    log_cleaner_min_cleanable_ratio = double(
        0.5, at_most=1.0, dynamic=True, doc="Share of dirty bytes from which a log is compacted."
    )
    log_cleaner_min_compaction_lag_ms = int64(0, dynamic=True, doc="Time for which a record is safe from compaction.")
    log_cleaner_max_compaction_lag_ms = int64(
        LONG_MAX, at_least=1, dynamic=True, doc="Time after which a record must be considered for compaction."
    )
    log_cleaner_delete_retention_ms = int64(
        86400000, dynamic=True, doc="How long tombstones are kept, from the first cleaning that reads them."
    )
