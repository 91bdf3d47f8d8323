"""Foundations that every other package stands on: clocks, tasks, configuration, logs, metrics."""
