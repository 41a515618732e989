"""What a broker's parts are handed to work with: clock, files, timers, threads, logs, topics, and the counters.

A plain frozen record, made once by `Node` and handed down; it has no behaviour, and what is in it never changes places.
A part that needs two or three things is handed these and not the record. What only handlers of requests reach (fetch
sessions, coordinators) is added one floor up, by `ApiServices`: parts below it cannot depend on one another through it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.plain import Plain

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.catalog.producer_ids import ProducerIds
    from ottla.broker.runtime.answer_memory import AnswerMemory
    from ottla.broker.runtime.disk import GroupSyncer
    from ottla.broker.runtime.listening_time import ListeningTime
    from ottla.broker.runtime.memory_reserve import MemoryReserve
    from ottla.broker.runtime.metrics import Metrics
    from ottla.broker.runtime.timers import Timers
    from ottla.broker.runtime.turn import Turn
    from ottla.broker.runtime.validity import Validity
    from ottla.broker.runtime.workers import OneAtATime, Workers
    from ottla.broker.security.audit import Audit
    from ottla.broker.security.logins import Logins
    from ottla.broker.security.quotas.quotas import Quotas
    from ottla.config.broker import BrokerConfig
    from ottla.storage.directories.manager import LogManager
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.clock_trust import ClockTrust
    from ottla.storage.files.files import Files


class Services(Plain, eq=False, frozen=True):
    """See the module's text. All of it is for the broker's one thread, but for what says otherwise.

    Attributes:
        clock: the only clock that may be read.
        clock_trust: whether the wall clock may be believed, and by which time records are deleted.
        files: the door to the operating system's files.
        timers: deadlines by the clock.
        listening: the time that counts against clients which have to show life.
        turn: the loop's turn: what it appends and whom it wakes at its end.
        syncer: the disk: group syncs, of which it reports the end on the broker's thread.
        workers: threads for what may block.
        conversions: the same, one piece of work at a time: between message formats, for old clients.
        metrics: counters.
        validity: the stamp at which request templates hold.
        answer_memory: what may be held of answers that are not sent yet.
        memory_reserve: memory that is given back to the system when it has none left.
        log_manager: all logs and the directories that they live in.
        catalog: topics, partitions and settings, as the metadata log has them.
        producer_ids: ids for idempotent producers.
        quotas: what clients may take.
        audit: the audit log, None where there is none.
        logins: counts, and writes to the audit log, who has logged in and who has not.
    """

    config: BrokerConfig
    clock: Clock
    clock_trust: ClockTrust
    files: Files
    timers: Timers
    listening: ListeningTime
    turn: Turn
    syncer: GroupSyncer
    workers: Workers
    conversions: OneAtATime
    metrics: Metrics
    validity: Validity
    answer_memory: AnswerMemory
    memory_reserve: MemoryReserve
    log_manager: LogManager
    catalog: Catalog
    producer_ids: ProducerIds
    quotas: Quotas
    audit: Audit | None
    logins: Logins
