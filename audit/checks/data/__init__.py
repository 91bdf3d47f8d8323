"""Checks of the data: replicas of one partition, and sends that clients saw acknowledged."""
