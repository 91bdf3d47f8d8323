"""KRaft: the pure core, the metadata log on disk, and the driver that joins them."""
