"""The log of a partition, and all logs of a log directory."""
