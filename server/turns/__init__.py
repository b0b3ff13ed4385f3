"""Turns of more than actions: claims, conditions and publications, as clients request them."""
