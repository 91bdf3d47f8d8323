"""Checks of the data: the replicas of one partition, and the sends that clients saw
acknowledged.
"""
