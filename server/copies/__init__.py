"""Copies of a home: backups and their restores, and one home copied to another."""
