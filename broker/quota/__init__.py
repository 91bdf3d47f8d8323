"""Client quotas of one broker (KIP-13, KIP-124, KIP-546)."""
