"""Pipes: how stages are joined, split, lent and checked."""
