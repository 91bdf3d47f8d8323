"""Metric families of a broker, read from its parts at scrape time."""
