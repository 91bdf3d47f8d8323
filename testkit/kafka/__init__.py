"""Apache Kafka as the oracle: its jars, its nodes in the place of ours, its tools."""
