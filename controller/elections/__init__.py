"""Leader elections: who may lead, who is chosen, and the one place that writes the change."""
