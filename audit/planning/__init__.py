"""Plans: the pieces of an audit's work."""
