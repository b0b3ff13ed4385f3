"""The actors' engine: actors, facets and fields, one turn at a time; pure."""
