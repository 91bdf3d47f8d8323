"""Fuzz targets: each module has `make() -> Target`."""
