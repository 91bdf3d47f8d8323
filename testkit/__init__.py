"""Code for tests, benchmarks and fuzzing that a node does not need: runners, fakes, factories."""
