"""A Kafka client over asyncio, for commands, chaos runs and tests."""
