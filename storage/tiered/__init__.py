"""Segments in an object store (KIP-405): formats, state, and plans for copying and deleting."""
