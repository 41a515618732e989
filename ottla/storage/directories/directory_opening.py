"""Taking all entries of `log.dirs` at a start: their owners, whether they agree, and which can be used.

Nothing is changed before all of them agree. A directory with a failing disk is OFFLINE as long as another one works.
Called by `manager.py` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.log_placement import remove_leftovers
from ottla.storage.errors import StorageError
from ottla.storage.formats.kafka_uuid import random_uuid, uuid_to_text
from ottla.storage.formats.layout import (
    META_PROPERTIES_FILE,
)
from ottla.storage.formats.meta_properties import MetaProperties

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.storage.files.files import Files


Look: TypeAlias = Callable[[Sequence[LogDirectory]], None]
"""Checks directories to which nothing was written yet; raises an error that a start must not continue after."""


class TakenDirectories(NamedTuple):
    """The result of taking the directories. `directories` are in the order of `log.dirs`, OFFLINE ones included."""

    directories: list[LogDirectory]
    cluster_id: str


def claim_directories(files: Files, config: BrokerConfig) -> list[LogDirectory]:
    """Lock the entries of `log.dirs` that have a lock file. Creates and changes nothing. StorageError, in one line,
    when another process has one locked; the locks already taken are released then.
    """
    directories = [
        LogDirectory(
            files,
            path,
            lambda: config.ottla_log_dir_reserve_bytes,
            lambda: config.ottla_log_dir_reserve_inodes,
            cordoned=lambda: config.cordoned_log_dirs,
            keeps_redo_log=config.ottla_redo_log_enable,
        )
        for path in _distinct(config.log_dirs)
    ]
    try:
        for directory in directories:
            directory.claim()
    except BaseException:
        release_directories(directories)
        raise
    return directories


def release_directories(directories: Sequence[LogDirectory]) -> None:
    """Release the locks."""
    for directory in directories:
        directory.release()


def take_directories(
    files: Files,
    config: BrokerConfig,
    directories: list[LogDirectory],
    cluster_id: str | None,
    look: Look | None = None,
) -> TakenDirectories:
    """Open and check the directories that `claim_directories` returned, then begin in each of them.

    The directories must have `cluster_id` if it is given; without it, theirs is used, or a new one is made. Raises
    StorageError, in one line, when the broker cannot start on them, and whatever `look` raises; then their locks are
    released, and nothing was written.
    """
    found: dict[Path, MetaProperties | None] = {}
    try:
        for directory in directories:
            try:
                found[directory.path] = directory.open()
            except OSError as error:
                directory.mark_offline(error, is_logged=False)
        _demand_one(directories)
        identities = {path: properties for path, properties in found.items() if properties is not None}
        agreed = _check_identities(identities, config.node_id, cluster_id)
        _refuse_shared_ids(directories)
        if look is not None:
            look(directories)
        taken = TakenDirectories(directories, agreed or uuid_to_text(random_uuid()))
        for directory in directories:
            if directory.is_offline:
                continue
            try:
                directory.begin(taken.cluster_id, config.node_id, found[directory.path])
                remove_leftovers(files, directory)
                directory.look_at_room()
            except OSError as error:
                directory.mark_offline(error, is_logged=False)
        _demand_one(directories)
        for directory in directories:
            if directory.is_offline:
                directory.log_offline()
    except BaseException:
        release_directories(directories)
        raise
    return taken


def _distinct(log_dirs: Sequence[str]) -> list[Path]:
    paths = [Path(path).absolute() for path in log_dirs]
    for path in paths:
        if paths.count(path) > 1:
            raise StorageError(f"log.dirs names {path} twice")
    return paths


def _demand_one(directories: Sequence[LogDirectory]) -> None:
    if all(directory.is_offline for directory in directories):
        reasons = "; ".join(f"{directory.path}: {_reason(directory.error)}" for directory in directories)
        raise StorageError(f"no log directory can be used: {reasons}")


def _reason(error: Exception | None) -> str:
    """The operating system's message, without the name of the file in the directory that caused it."""
    return str((error.strerror if isinstance(error, OSError) else None) or error)


def _check_identities(found: Mapping[Path, MetaProperties], node_id: int, wanted_cluster_id: str | None) -> str | None:
    """The cluster id that all agree on, None when none has one. Raises StorageError, naming the file that differs."""
    cluster_id, said_by = wanted_cluster_id, "the configuration"
    for path, properties in found.items():
        file = path / META_PROPERTIES_FILE
        if properties.node_id != node_id:
            raise StorageError(f"{file} belongs to node.id {properties.node_id}, this broker is node.id {node_id}")
        if not properties.cluster_id:
            continue  # Kafka before 0.10.1
        if cluster_id is None:
            cluster_id, said_by = properties.cluster_id, str(file)
        elif properties.cluster_id != cluster_id:
            raise StorageError(f"{file} says cluster.id {properties.cluster_id}, {said_by} says {cluster_id}")
    return cluster_id


def _refuse_shared_ids(directories: Sequence[LogDirectory]) -> None:
    seen: dict[UUID, LogDirectory] = {}
    for directory in directories:
        if directory.id is not None and not directory.is_offline:
            other = seen.setdefault(directory.id, directory)
            if other is not directory:
                raise StorageError(
                    f"{other.path} and {directory.path} have the same directory.id {uuid_to_text(directory.id)}: "
                    "one is a copy of the other, remove one from log.dirs"
                )
