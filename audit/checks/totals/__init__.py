"""Checks of the sums over a whole log."""
