"""Checks of the metadata: each record, and the state after the records."""
