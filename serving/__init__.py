"""Answers that brokers and controllers give alike."""
