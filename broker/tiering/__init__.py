"""Tiered storage on a broker (KIP-405): the shells that put `storage/tiered` to work."""
