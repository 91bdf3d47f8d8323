"""Checks of the metadata: each record, and the state that the records make."""
