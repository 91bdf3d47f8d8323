"""What tests, benchmarks and fuzzing need and a node does not: runners, fakes, factories."""
