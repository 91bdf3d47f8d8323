"""Requests of a broker to other brokers: connections by purpose, and queues of items by broker."""
