"""One partition of a broker: its state, its decisions, and the effects of these."""
