"""Client quotas and the quota of controller mutations."""
