"""One node as a process: start, signals, exit code."""
