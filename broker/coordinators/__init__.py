"""State machines that live in the partitions of internal topics."""
