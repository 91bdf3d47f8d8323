"""Chaos: clients whose operations are recorded, faults from a seed, and a check of the promises."""
