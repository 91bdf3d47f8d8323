"""Subscriptions to one partition, and the notifications that they carry out."""
