"""Parts of a node on files and sockets in memory, or combined with fakes."""
