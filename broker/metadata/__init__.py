"""Metadata image as this broker's handlers read it."""
