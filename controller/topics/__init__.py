"""Topics and partitions: creation, growth, deletion, placement, ISR, reassignment."""
