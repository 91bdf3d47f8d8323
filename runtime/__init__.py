"""Foundations of all other packages: clocks, tasks, configuration, logs, metrics."""
