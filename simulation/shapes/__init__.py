"""The shapes of simulated clusters: their values, and how each part is drawn."""
