"""When an admin's look-up gives up on a topic that does not exist: at once or soon, as Java's Admin of Kafka 4.4.

A topic that was just created may be unknown to the broker that is asked, on a cluster of several nodes. Java's Admin
fails listOffsets at once, and asks again until its timeout for deleteRecords, describeProducers and abortTransaction
(`PartitionLeaderStrategy`, with `tolerateUnknownTopics`), and in all of them for a partition that an existing topic
lacks. Here asking again is short: a mistyped name is the usual reason.
"""

from __future__ import annotations

from ottla.client.errors import KafkaError
from ottla.protocol.errors import ErrorCode

PATIENCE_S = 0.5
"""How long a topic or partition may be unknown; metadata reaches the nodes of a cluster in some tens of ms."""


class NoSuchTopic(KafkaError):
    """The metadata says that there is no such topic."""


def gives_up_soon(error: KafkaError, elapsed_s: float) -> bool:
    """Whether a look-up that began so long ago ends with this error, which is worth a retry otherwise."""
    return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and elapsed_s >= PATIENCE_S


def gives_up_on_a_topic(error: KafkaError, elapsed_s: float) -> bool:
    """As `gives_up_soon`, and at once for a topic that does not exist."""
    return isinstance(error, NoSuchTopic) or gives_up_soon(error, elapsed_s)


def most_final(failures: list[KafkaError]) -> KafkaError:
    """The failure that ends a look-up soonest, of those that are all worth a retry."""
    return min(
        failures,
        key=lambda one: (not isinstance(one, NoSuchTopic), one.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    )
