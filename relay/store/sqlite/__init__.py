"""The store in SQLite: a file for each log, for the journal of topics and for staged batches."""
