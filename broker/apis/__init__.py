"""APIs that a broker serves, one file per API; each file registers its own version range."""
