"""Findings, and the sink that a piece of work puts them into."""
