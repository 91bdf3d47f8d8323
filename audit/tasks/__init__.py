"""Tasks: one piece of work each, executed in a Spark task or in this process."""
