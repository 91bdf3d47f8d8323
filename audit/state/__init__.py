"""The cluster as the audit sees it: state, partition shapes, elections."""
