"""The index: values, patterns over them, and which observers each value concerns.

``HOWITWORKS.md`` explains the algorithm, ``TEXT.md`` how values and patterns are written.  The public names
are in ``dataspace.values``, ``dataspace.patterns`` and ``dataspace.text``.
"""
