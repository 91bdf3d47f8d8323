"""All partitions of a broker, and the table that carries out their effects."""
