"""The current topics, read from the partitions' directories, if the readable metadata are older.

The topic id is in each `partition.metadata` (a topic without any gets a new one), the number of partitions follows
from their numbers, the leader epoch from their checkpoints.

- A topic without a directory was deleted after the damage, and is dropped.
- A topic that is known only by its directories gets `retention.ms=-1` and `retention.bytes=-1`, because its
  configuration is lost, and the broker's defaults would delete its records. `__consumer_offsets` is compacted, as
  always.
- Producer ids continue far above all that could have been assigned meanwhile.

Called by the rebuild of the metadata log only. Changes the image, writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from ottla.broker.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicState
from ottla.broker.metadata.internal_topics import OFFSETS_CONFIGURATION
from ottla.broker.metadata.partition_state import PartitionState
from ottla.protocol.stored.metadata import ProducerIdsRecord
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.layout import OFFSETS_TOPIC
from ottla.storage.formats.leader_epoch_checkpoint import read_leader_epochs
from ottla.storage.producers.snapshot_format import CorruptSnapshot, parse_snapshot

if TYPE_CHECKING:
    from ottla.broker.metadata.salvaged import SalvagedMetadata

PRODUCER_IDS_LEFT_OUT: Final = 1_000_000
"""The distance from the last known producer id: this many may have been assigned after the damage."""
MOST_MADE_UP: Final = 10_000
"""The most missing partitions of a topic that are created; a directory may be called `x-2000000000`."""
CONFIGURATION_IS_LOST: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


def reconcile(salvaged: SalvagedMetadata) -> Iterator[str]:
    """Make `salvaged.image` agree with the directories; yields a line for the user for each difference."""
    image = salvaged.image
    ids = salvaged.topic_ids()
    found: dict[str, dict[int, Path]] = {}
    for one, path in salvaged.partition_directories():
        found.setdefault(one.topic, {})[one.partition] = path
    for topic in list(image.topics.values()):
        if topic.name not in found or ids.get(topic.name, topic.id) != topic.id:
            _forget(image, topic)
            yield f"topic {topic.name} ({topic.id}): no directory of it is left, it is forgotten"
    for name, directories in sorted(found.items()):
        if name not in image.topics:
            if name not in ids:
                yield f"topic {name}: no directory says its topic id, so it gets a new one"
            _add(image, name, ids.get(name) or uuid4())
            overrides = ", ".join(f"{k}={v}" for k, v in image.topic_configs(name).items())
            yield f"topic {name}: its configuration is lost; {overrides} until another one is set"
        taken, left_out = _within_reason(directories, len(image.topics[name].partitions))
        for path in left_out:
            yield f"{path.name}: left out, since too many partitions before it are not there: it becomes -stray"
        _add_partitions(salvaged, image.topics[name], taken)
    image.producer_ids = ProducerIdsRecord(
        broker_id=salvaged.node_id(),
        next_producer_id=max(image.next_producer_id, _largest_producer_id(salvaged.files, found) + 1)
        + PRODUCER_IDS_LEFT_OUT,
    )


def _forget(image: MetadataImage, topic: TopicState) -> None:
    del image.topics[topic.name]
    del image.topics_by_id[topic.id]
    image.configs.pop((TOPIC_RESOURCE, topic.name), None)
    image.partition_count -= len(topic.partitions)


def _add(image: MetadataImage, name: str, topic_id: UUID) -> None:
    image.topics[name] = image.topics_by_id[topic_id] = TopicState(name, topic_id)
    overrides = OFFSETS_CONFIGURATION if name == OFFSETS_TOPIC else CONFIGURATION_IS_LOST
    image.configs[TOPIC_RESOURCE, name] = dict(overrides)


def _within_reason(directories: Mapping[int, Path], known: int) -> tuple[dict[int, Path], list[Path]]:
    """The directories of a topic, without the partitions that have too many missing ones before them."""
    taken: dict[int, Path] = {}
    for number, (index, path) in enumerate(sorted(directories.items())):
        if index >= known and index - number > MOST_MADE_UP:
            return taken, [path for index, path in sorted(directories.items()) if index not in taken]
        taken[index] = path
    return taken, []


def _add_partitions(salvaged: SalvagedMetadata, topic: TopicState, directories: Mapping[int, Path]) -> None:
    node_id = salvaged.node_id()
    for index in range(max([*directories, *topic.partitions], default=0) + 1):
        path = directories.get(index)
        epoch = 0 if path is None else _last_epoch(salvaged.files, path)
        known = topic.partitions.get(index)
        if known is not None:
            topic.partitions[index] = known._replace(leader_epoch=max(known.leader_epoch, epoch))
            continue
        topic.partitions[index] = PartitionState(
            replicas=(node_id,),
            isr=(node_id,),
            leader=node_id,
            leader_epoch=epoch,
            partition_epoch=0,
            directories=(salvaged.directory_id(salvaged.roots[0] if path is None else path.parent),),
        )
        salvaged.image.partition_count += 1
    topic.partitions = dict(sorted(topic.partitions.items()))


def _last_epoch(files: Files, path: Path) -> int:
    try:
        entries = read_leader_epochs(files, path)
    except BrokenFile:
        return 0  # it is repaired already, unless it is in another log directory
    return entries[-1].epoch if entries else 0


def _largest_producer_id(files: Files, found: Mapping[str, Mapping[int, Path]]) -> int:
    largest = -1
    for directories in found.values():
        for path in directories.values():
            for name in files.list_directory(path):
                if not name.endswith(layout.SNAPSHOT_SUFFIX):
                    continue
                try:
                    producers = parse_snapshot(files.read_bytes(path / name))
                except CorruptSnapshot:
                    continue
                largest = max([largest, *(producer.producer_id for producer in producers)])
    return largest
