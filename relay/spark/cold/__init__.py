"""Reading archives from Spark: plans, and rows from segments and columns, without the daemon."""
