"""Planted bugs: what the judges must find, each switched on by name for one run."""
