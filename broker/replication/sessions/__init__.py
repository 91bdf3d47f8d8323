"""Fetch sessions (KIP-227) and their subscriptions to partitions."""
