"""Durable topics on disk: their journal and the task that writes it; what is written is ``relay/topics``."""
