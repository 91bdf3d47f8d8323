"""The audit of metadata logs and replicas, by replay (docs/audit.md)."""
