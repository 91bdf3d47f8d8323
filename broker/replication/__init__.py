"""Partitions as this broker holds them: leader and follower state, appends, fetches, waiting."""
