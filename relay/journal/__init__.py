"""Durable topics on disk: their journal, written or followed; ``relay/topics`` makes the steps."""
