"""The store in PostgreSQL: the second home of logs, topics and staged batches."""
