"""Options, columns and connections that Spark's source and sink share."""
