"""The API versions and the features of each release of Apache Kafka, as data.

Sources: for 4.4.0, 4.1.0 and 4.0.0, the ApiVersions answer of a running broker of that release; for 3.9.0 and 2.8.0,
the message schemas in the release's source (those for listeners of kind `broker` and `zkBroker`, without unstable
versions). Tests compare it with the tables of kafka-python 3 (`kafka.protocol.broker_version_data`), and that of 4.4
with a running Apache Kafka 4.4 if one is available. Internal APIs of a cluster in KRaft mode are left out.

`0-13` are the versions that ApiVersions lists; `-`: the release does not have the API.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Range = tuple[int, int]

_TABLE: Final = """\
key  API                                    2.8    3.9    4.0    4.1    4.4
  0  Produce                                0-9    0-11   0-12   0-13   0-13
  1  Fetch                                  0-12   0-17   4-17   4-18   4-18
  2  ListOffsets                            0-6    0-9    1-10   1-10   1-11
  3  Metadata                               0-11   0-12   0-13   0-13   0-13
  4  LeaderAndIsr                           0-5    -      -      -      -
  5  StopReplica                            0-3    -      -      -      -
  6  UpdateMetadata                         0-7    -      -      -      -
  7  ControlledShutdown                     0-3    -      -      -      -
  8  OffsetCommit                           0-8    0-9    2-9    2-9    2-10
  9  OffsetFetch                            0-7    0-9    1-9    1-9    1-10
 10  FindCoordinator                        0-3    0-6    0-6    0-6    0-6
 11  JoinGroup                              0-7    0-9    2-9    0-9    0-9
 12  Heartbeat                              0-4    0-4    0-4    0-4    0-4
 13  LeaveGroup                             0-4    0-5    0-5    0-5    0-5
 14  SyncGroup                              0-5    0-5    0-5    0-5    0-5
 15  DescribeGroups                         0-5    0-5    0-6    0-6    0-6
 16  ListGroups                             0-4    0-5    0-5    0-5    0-5
 17  SaslHandshake                          0-1    0-1    0-1    0-1    0-1
 18  ApiVersions                            0-3    0-4    0-4    0-4    0-5
 19  CreateTopics                           0-7    0-7    2-7    2-7    2-7
 20  DeleteTopics                           0-6    0-6    1-6    1-6    1-6
 21  DeleteRecords                          0-2    0-2    0-2    0-2    0-2
 22  InitProducerId                         0-4    0-5    0-5    0-5    0-5
 23  OffsetForLeaderEpoch                   0-4    0-4    2-4    2-4    2-4
 24  AddPartitionsToTxn                     0-3    0-5    0-5    0-5    0-5
 25  AddOffsetsToTxn                        0-3    0-4    0-4    0-4    0-4
 26  EndTxn                                 0-3    0-4    0-5    0-5    0-5
 27  WriteTxnMarkers                        0-1    0-1    1      1      1-2
 28  TxnOffsetCommit                        0-3    0-4    0-5    0-5    0-6
 29  DescribeAcls                           0-2    0-3    1-3    1-3    1-3
 30  CreateAcls                             0-2    0-3    1-3    1-3    1-3
 31  DeleteAcls                             0-2    0-3    1-3    1-3    1-3
 32  DescribeConfigs                        0-4    0-4    1-4    1-4    1-4
 33  AlterConfigs                           0-2    0-2    0-2    0-2    0-2
 34  AlterReplicaLogDirs                    0-2    0-2    1-2    1-2    1-2
 35  DescribeLogDirs                        0-2    0-4    1-4    1-4    1-5
 36  SaslAuthenticate                       0-2    0-2    0-2    0-2    0-2
 37  CreatePartitions                       0-3    0-3    0-3    0-3    0-3
 38  CreateDelegationToken                  0-2    0-3    1-3    1-3    1-3
 39  RenewDelegationToken                   0-2    0-2    1-2    1-2    1-2
 40  ExpireDelegationToken                  0-2    0-2    1-2    1-2    1-2
 41  DescribeDelegationToken                0-2    0-3    1-3    1-3    1-3
 42  DeleteGroups                           0-2    0-2    0-2    0-2    0-3
 43  ElectLeaders                           0-2    0-2    0-2    0-2    0-2
 44  IncrementalAlterConfigs                0-1    0-1    0-1    0-1    0-1
 45  AlterPartitionReassignments            0      0      0      0-1    0-1
 46  ListPartitionReassignments             0      0      0      0      0
 47  OffsetDelete                           0      0      0      0      0
 48  DescribeClientQuotas                   0-1    0-1    0-1    0-1    0-1
 49  AlterClientQuotas                      0-1    0-1    0-1    0-1    0-1
 50  DescribeUserScramCredentials           0      0      0      0      0
 51  AlterUserScramCredentials              0      0      0      0      0
 55  DescribeQuorum                         -      0-2    0-2    0-2    0-2
 56  AlterPartition                         0      -      -      -      -
 57  UpdateFeatures                         0      0-1    0-2    0-2    0-2
 60  DescribeCluster                        0      0-1    0-2    0-2    0-2
 61  DescribeProducers                      0      0      0      0      0
 64  UnregisterBroker                       -      0      0      0      0
 65  DescribeTransactions                   -      0      0      0      0
 66  ListTransactions                       -      0-1    0-1    0-2    0-2
 68  ConsumerGroupHeartbeat                 -      0      0-1    0-1    0-1
 69  ConsumerGroupDescribe                  -      0      0-1    0-1    0-1
 71  GetTelemetrySubscriptions              -      0      -      -      -
 72  PushTelemetry                          -      0      -      -      -
 74  ListConfigResources                    -      0      0      0-1    0-1
 75  DescribeTopicPartitions                -      0      0      0      0
 76  ShareGroupHeartbeat                    -      -      -      1      1
 77  ShareGroupDescribe                     -      -      -      1      1
 78  ShareFetch                             -      -      -      1      1-2
 79  ShareAcknowledge                       -      -      -      1      1-2
 80  AddRaftVoter                           -      0      0      0      0-1
 81  RemoveRaftVoter                        -      0      0      0      0
 83  InitializeShareGroupState              -      -      -      0      0
 84  ReadShareGroupState                    -      -      -      0      0
 85  WriteShareGroupState                   -      -      -      0      0-1
 86  DeleteShareGroupState                  -      -      -      0      0
 87  ReadShareGroupStateSummary             -      -      -      0      0-1
 88  StreamsGroupHeartbeat                  -      -      -      -      0-1
 89  StreamsGroupDescribe                   -      -      -      -      0-1
 90  DescribeShareGroupOffsets              -      -      -      0      0-1
 91  AlterShareGroupOffsets                 -      -      -      0      0
 92  DeleteShareGroupOffsets                -      -      -      0      0
 93  StreamsGroupTopologyDescriptionUpdate  -      -      -      -      0
 94  GetReplicaLogInfo                      -      -      -      -      0
"""

FEATURES: Final[Mapping[str, Mapping[str, Range]]] = MappingProxyType(
    {
        "2.8": {},
        "3.9": {"kraft.version": (0, 1), "metadata.version": (1, 21)},
        "4.0": {
            "eligible.leader.replicas.version": (0, 1),
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 25),
            "transaction.version": (0, 2),
        },
        "4.1": {
            "eligible.leader.replicas.version": (0, 1),
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 27),
            "share.version": (0, 1),
            "transaction.version": (0, 2),
        },
        "4.4": {
            "eligible.leader.replicas.version": (0, 1),
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 33),
            "share.version": (0, 2),
            "streams.version": (0, 1),
            "transaction.version": (0, 2),
        },
    }
)
"""The levels of each feature that a release supports, without those that are not ready for production."""

REFUSED_PRODUCE_BELOW: Final = 3
"""Kafka 4 lists Produce 0-2 but closes a connection that sends one: to librdkafka before 2.8.1, a higher first version
would mean a broker without message format v2 (KAFKA-18659)."""


def _parsed(table: str) -> tuple[dict[int, str], dict[str, dict[int, Range]]]:
    """API names by key, and per release the ranges by key."""
    head, *rows = table.splitlines()
    releases = head.split()[2:]
    names: dict[int, str] = {}
    ranges: dict[str, dict[int, Range]] = {release: {} for release in releases}
    for row in rows:
        key, name, *cells = row.split()
        names[int(key)] = name
        for release, cell in zip(releases, cells, strict=True):
            if cell != "-":
                first, _, last = cell.partition("-")
                ranges[release][int(key)] = (int(first), int(last or first))
    return names, ranges


_NAMES, _RANGES = _parsed(_TABLE)
API_NAMES: Final[Mapping[int, str]] = MappingProxyType(_NAMES)
"""Kafka's names of the APIs, by key."""
RELEASES: Final[Mapping[str, Mapping[int, Range]]] = MappingProxyType(_RANGES)
"""The versions that a release lists, by API key."""
