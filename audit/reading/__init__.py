"""Readers of files: logs, replicas, client histories."""
