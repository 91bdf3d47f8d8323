"""Parts of a node on files and sockets in memory, or with fakes beside them."""
