"""Durable topics on disk: their journal and the task that writes it; ``relay/topics`` makes the steps."""
