"""Checks of the data: replicas of one partition beside each other and what clients saw."""
