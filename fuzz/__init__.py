"""Fuzzing: any bytes lead to a value or a protocol error, in bounded time and memory.

`python -m fuzz.run --minutes 1` runs every target; see `fuzz.run`. A target is one module of
`fuzz.targets`. `tests/property/test_fuzz_targets.py` runs the same targets under Hypothesis, which
shrinks the failing inputs.
"""
