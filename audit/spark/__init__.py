"""The audit on Spark: data sources, tables, Java, the package for executors."""
