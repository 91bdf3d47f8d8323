"""Requests that change the cluster: forwarded to the controller, or answered with its help."""
