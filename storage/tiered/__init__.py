"""Segments in an object store (KIP-405): formats, what is known of them, what to do next."""
