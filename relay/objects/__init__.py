"""Stores of objects: folders of named byte strings, on a disk or at a URL."""
