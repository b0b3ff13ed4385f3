"""The publishing side of topics: partitions, groups, and what is retained; see ``dataspace/topics``."""
