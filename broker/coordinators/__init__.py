"""Coordinators: state machines stored in the partitions of internal topics."""
