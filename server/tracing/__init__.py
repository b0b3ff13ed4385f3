"""Spans of turns for OpenTelemetry: from the client to the commit, the disk and the observers."""
