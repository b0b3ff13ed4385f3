"""The bulk client: one plain blocking socket, for Spark and readers of columns."""
