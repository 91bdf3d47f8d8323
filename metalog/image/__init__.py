"""The metadata image: frozen values, the one replay table, deltas and snapshots.

Imports only `protocol`: the audit ships this package to Spark with nothing else of ours.
"""
