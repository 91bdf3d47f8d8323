"""Dynamic configurations, SCRAM credentials and finalised features."""
