"""Random failovers of the coordinator's store under load, and a checker that knows every acknowledged offset."""
