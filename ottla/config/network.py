"""Keys about this broker's identity, its listeners, and the limits of its connections."""

from __future__ import annotations

from ottla.config.declare import INT_MAX, boolean, finer, int32, int64, parsed, string, words
from ottla.config.listeners import (
    parse_address_counts,
    parse_advertised_listeners,
    parse_bound_listeners,
    parse_protocol_map,
)
from ottla.config.options import ConfigType, Options, text_of


def _others_named(value: object) -> str:
    """The warning about more than one controller: the setting expects several brokers to be one cluster."""
    assert isinstance(value, tuple)
    alone = "Ottla has no clusters of brokers: each broker is a cluster by itself, with its own topics"
    return alone if len(value) > 1 else ""


class Identity(Options):
    """The broker and its controller."""

    broker_id = int32(1, kafka="-1", doc="Older name of `node.id`.")
    node_id = finer(
        (broker_id, 1), bits=32, kafka="-1 (must be set)", doc="Number of this broker, as clients see it in Metadata."
    )
    broker_rack = string(
        "", empty_is_unset=True, doc="Rack of this broker, as clients see it in Metadata; empty for none."
    )
    process_roles = words(
        ("broker", "controller"),
        "broker",
        "controller",
        kafka="(must be set)",
        inert="Ottla is always both, in one process",
        doc="Roles of this process.",
    )
    controller_quorum_voters = words(
        (),
        inert="the broker is its own controller",
        unusual=_others_named,
        doc="Voters of the metadata quorum.",
    )
    controller_quorum_bootstrap_servers = words(
        (),
        inert="the broker is its own controller",
        unusual=_others_named,
        doc="Where to find the metadata quorum.",
    )
    controller_listener_names = words(
        ("CONTROLLER",),
        kafka="(none)",
        doc="Listeners of these names are read and not bound: no client needs to reach the controller.",
    )


class ListenerLimits(Options):
    """Limits of connections: their number and their rate, on the broker or on one listener."""

    max_connections = int32(
        INT_MAX,
        dynamic=True,
        doc="Connections at a time, as far as RLIMIT_NOFILE has room for them beside the logs; more are closed. "
        "`listener.name.NAME.max.connections` limits those of one listener.",
    )
    max_connection_creation_rate = int32(
        INT_MAX,
        dynamic=True,
        doc="New connections per second; more of them wait. `listener.name.NAME.max.connection.creation.rate` limits "
        "those of one listener.",
    )


class Network(Options):
    """Listeners and connections."""

    listeners = parsed(
        "PLAINTEXT://:9092",
        parse_bound_listeners,
        kind=ConfigType.LIST,
        allowed="NAME://host:port, …",
        doc="Where the broker listens. An empty host means every address; port 0 lets the system choose, and the "
        "start-up line shows the chosen port.",
    )
    advertised_listeners = parsed(
        "auto",
        parse_advertised_listeners,
        kind=ConfigType.LIST,
        allowed="auto, or NAME://host:port, …",
        kafka="= listeners",
        show=lambda value: text_of(value) or "auto",
        doc="Addresses that clients connect to. `auto`, also for every listener that is not named here "
        "and for one without a host: the address that this client has connected to. Port 0 means the port that "
        "was bound.",
    )
    listener_security_protocol_map = parsed(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        parse_protocol_map,
        kind=ConfigType.STRING,
        allowed="NAME:PROTOCOL, …",
        doc="Protocol of each listener's name. The names of the four protocols mean themselves and need not be "
        "repeated.",
    )
    inter_broker_listener_name = string(
        "", empty_is_unset=True, inert="there is no other broker", doc="Listener for traffic between brokers."
    )
    security_inter_broker_protocol = string(
        "PLAINTEXT", inert="there is no other broker", doc="Protocol for traffic between brokers."
    )
    socket_request_max_bytes = int32(
        104857600,
        at_least=1,
        doc="Longest request. A longer one closes its connection. Where it is not set and memory is limited (a cgroup, "
        "`ulimit -d`): at most a sixteenth of it, but room for two batches of `message.max.bytes`.",
    )
    socket_send_buffer_bytes = int32(
        -1,
        at_least=-1,
        kafka="102400",
        doc="SO_SNDBUF of connections; -1 lets the system grow it as needed. Where it is not set and memory is limited "
        "to less than 1 GiB (a cgroup, `ulimit -d`): a 1024th of it, at least 64 KiB.",
    )
    socket_receive_buffer_bytes = int32(
        -1, at_least=-1, kafka="102400", doc="SO_RCVBUF of connections; -1 lets the system grow it as needed."
    )
    socket_listen_backlog_size = int32(
        50, at_least=1, doc="Connections that the system keeps waiting until the broker accepts them."
    )
    queued_max_requests = int32(
        500,
        at_least=1,
        inert="requests do not queue for threads; `queued.max.request.bytes` and "
        "`ottla.connection.max.pending.requests` bound waiting requests",
        doc="Requests that may wait for an answer, over all connections, before reading pauses.",
    )
    queued_max_request_bytes = int64(
        268435456,
        at_least=-1,
        kafka="-1",
        doc="Bytes of requests held in memory, over all connections, before reading pauses; -1 for no limit. Where it "
        "is not set, at least `socket.request.max.bytes`, and at most an eighth of the memory where that is limited (a "
        "cgroup, `ulimit -d`).",
    )
    connections_max_idle_ms = int64(
        600000, at_least=-1, doc="A connection that is idle for this time is closed; -1 for never."
    )
    max_connections_per_ip = int32(INT_MAX, dynamic=True, doc="Connections at a time from one address.")
    max_connections_per_ip_overrides = parsed(
        "",
        parse_address_counts,
        kind=ConfigType.STRING,
        allowed="ADDRESS:COUNT, …",
        dynamic=True,
        doc="Other limits for single addresses, as `address:count`.",
    )
    connection_failed_authentication_delay_ms = int32(
        100, doc="Delay before a client whose login has failed is answered, and its connection closed."
    )
    fetch_max_bytes = int32(
        57671680, at_least=1024, doc="Most bytes in one answer to Fetch, whatever the client asks for."
    )
    max_incremental_fetch_session_cache_slots = int32(1000, doc="Fetch sessions that are remembered.")
    request_timeout_ms = int32(
        30000, at_least=1, inert="it is for requests between brokers", doc="Deadline of requests between brokers."
    )


class Topics(Options):
    """Topics: creation and deletion."""

    num_partitions = int32(1, at_least=1, doc="Partitions of a topic that is created without a number.")
    default_replication_factor = int32(
        1,
        at_least=1,
        at_most=32767,
        inert="there is one broker: a number above 1 counts as 1, with a warning at the start",
        unusual=lambda value: "" if value == 1 else "counts as 1, there is one broker",
        doc="Replicas of a topic created without a number.",
    )
    auto_create_topics_enable = boolean(
        True, doc="Whether a topic is created when a client first asks for its metadata."
    )
    delete_topic_enable = boolean(True, doc="Whether clients may delete topics.")
    min_insync_replicas = int32(
        1,
        at_least=1,
        dynamic=True,
        inert="as in Kafka, no more replicas are asked for than a topic has: one",
        doc="Replicas that acks=all asks for.",
    )
    unclean_leader_election_enable = boolean(
        False, dynamic=True, inert="the only replica is always in sync", doc="Whether a replica that lags may lead."
    )
