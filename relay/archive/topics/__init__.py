"""The archives of durable topics: whole segments of the chain of each, numbered by steps."""
