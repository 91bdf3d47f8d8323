"""Chaos: clients under a ledger, faults from a seed, and a judge that says what broke."""
