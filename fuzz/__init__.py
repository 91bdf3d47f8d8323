"""Fuzzing: any bytes give a value or an error of the protocol, in bounded time and memory.

`python -m fuzz.run --minutes 1` runs every target; see `fuzz.run`. A target is one module of
`fuzz.targets`; `tests/property/test_fuzz_targets.py` runs the same ones under Hypothesis, which
shrinks what it finds.
"""
