"""The data audit: brokers' own logs against each other, the metadata, and what clients saw."""
