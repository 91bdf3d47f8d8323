"""Tasks: one piece of work each, done in a Spark task or in this process."""
