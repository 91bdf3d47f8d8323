"""Leader elections: eligibility, choice of the leader, and construction of partition changes."""
