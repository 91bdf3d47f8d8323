"""The replay of metadata records, which calls all checks on the way."""
