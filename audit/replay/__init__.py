"""The replay of metadata records, with every check asked on the way."""
