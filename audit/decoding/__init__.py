"""Batches and records of a log from their bytes."""
