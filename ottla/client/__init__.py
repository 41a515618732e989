"""The bundled asyncio client: Producer, Consumer, Admin. It speaks to Apache Kafka too."""
