"""The audit: replays metadata logs with Spark and says what happened (docs/audit.md)."""
