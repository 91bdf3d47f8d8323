"""Checks of the totals of a whole log."""
