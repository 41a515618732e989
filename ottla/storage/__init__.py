"""The log on disk, in Kafka's directory format. Synchronous: no asyncio, time is passed in."""
