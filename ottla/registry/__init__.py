"""A schema registry: Confluent's REST API over the topic `_schemas`, by the bundled client.

It is a client like any other, works with Apache Kafka too, and keeps nothing but what is in the topic, in Confluent's
own records (docs/decisions/the-registry-is-a-client.md). It knows neither the broker's code nor the command line.

    records.py         the keys and values of the topic
    state.py           what the records say; changed by replaying them only
    log.py             the topic: read to its end, written, and waited for until what was written is read back
    schemas.py         texts to schemas; the files of each type are avro_*, json_* and protobuf_*
    registry.py        what the API does
    routes.py          requests to calls of it
"""
