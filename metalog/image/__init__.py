"""The metadata image: immutable values, the replay table, deltas and snapshots.

This package imports only `protocol`: the audit ships it to Spark without our other packages.
"""
