"""Tiered storage on a broker (KIP-405): the shells that drive `storage/tiered`."""
