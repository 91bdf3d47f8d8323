"""The targets: each module has `make() -> Target`."""
