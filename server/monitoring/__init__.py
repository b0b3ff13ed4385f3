"""What an operator sees: metrics, health, sessions, the audit log and the slow log."""
