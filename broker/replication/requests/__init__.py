"""Requests of a broker to the controller about its partitions."""
