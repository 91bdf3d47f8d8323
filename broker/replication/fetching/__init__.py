"""Fetches of a follower from its leaders."""
