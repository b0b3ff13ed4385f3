"""Values: immutable facts and messages, their identity, order, text atoms and JSON."""
