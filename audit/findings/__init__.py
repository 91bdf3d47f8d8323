"""Findings, and the sink that tasks write them to."""
