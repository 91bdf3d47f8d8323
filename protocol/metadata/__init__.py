"""Placed below."""
