"""Planning of an audit's work in pieces."""
