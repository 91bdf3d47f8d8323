"""Workers' writes of a log: flushes, and leader-epoch-checkpoint files."""
