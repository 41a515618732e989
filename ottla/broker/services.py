"""The services that a broker's parts use: clock, files, timers, threads, logs, topics, and the counters.

A plain frozen record, created once by `Node` and passed down; it has no behaviour, and its fields never change. A part
that needs two or three of them gets these and not the record. `ApiServices`, one layer above, adds what only request
handlers use (fetch sessions, coordinators): so parts below it cannot depend on one another through it.
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
    """See the module's text. All of it is for the broker's thread, unless noted.

    Attributes:
        clock: the only clock that may be read.
        clock_trust: whether the wall clock may be trusted, and the time by which records are deleted.
        files: the interface to the operating system's files.
        timers: deadlines by the clock.
        listening: the time that counts against clients which have to send heartbeats.
        turn: the loop's turn: what it appends, and which clients it wakes at its end.
        syncer: the disk: group syncs, whose ends it reports on the broker's thread.
        workers: threads for work that may block.
        conversions: the same, one piece of work at a time: between message formats, for old clients.
        metrics: counters.
        validity: the stamp at which request templates are valid.
        answer_memory: the memory for answers that are not sent yet.
        memory_reserve: memory that is given back to the system when it has none left.
        log_manager: all logs and their directories.
        catalog: topics, partitions and settings, as in the metadata log.
        producer_ids: ids for idempotent producers.
        quotas: the quotas of clients.
        audit: the audit log, None if there is none.
        logins: counts logins and failed logins, and writes them to the audit log.
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
