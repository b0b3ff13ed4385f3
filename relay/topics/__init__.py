"""The publishing side of topics: partitions, groups, and retained items; see ``dataspace/topics``."""
