"""The audit's own model of the cluster: state, partition shapes, elections."""
