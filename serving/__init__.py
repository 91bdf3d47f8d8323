"""Code shared by the broker and controller roles: listeners, quotas, and APIs that both serve."""
