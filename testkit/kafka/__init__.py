"""Apache Kafka as the oracle: its jars, its nodes in place of Kraftbox's, its tools."""
