"""KRaft: the pure core, the metadata log on disk, and the node that connects them."""
