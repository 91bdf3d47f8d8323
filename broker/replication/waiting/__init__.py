"""Requests that wait: the purgatory, its waits and its timer."""
