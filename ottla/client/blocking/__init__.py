"""The blocking client: Producer, Consumer and Admin for programs without an event loop, usable from several threads.

    from ottla import Consumer, Producer

    with Producer("localhost:9092") as producer:
        producer.send("greetings", b"hello", key=b"world")

    with Consumer("localhost:9092", auto_offset_reset="earliest") as consumer:
        consumer.assign_topics("greetings")
        for record in consumer:
            print(record.offset, record.value)

Each is a twin of the asyncio client of the same name, which does the work in one background thread: the methods,
options and errors are the same. The first use starts a client; after a fork create a new one for each that was started.
At exit, open clients are closed, and a warning reports the number of records that could not be sent.
"""

from __future__ import annotations

from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.deliveries import Deliveries, Delivery
from ottla.client.blocking.producer import Producer
from ottla.client.blocking.share_consumer import ShareConsumer
from ottla.client.blocking.transaction import Transaction
from ottla.client.blocking.twins import AdminMethods


class Admin(AdminMethods):
    """The blocking twin of `ottla.client.Admin`: the same options and methods, which wait. A context manager."""


__all__ = ["Admin", "Consumer", "Deliveries", "Delivery", "Producer", "ShareConsumer", "Transaction"]
