"""Topics: publish-subscribe whose subscribers can reason about time.

Publishers send batches stamped with *times* (integers, or tuples under the product order) and say, by
holding and releasing *capabilities*, which times are still to come.  From this follow the two frontiers by
which every subscriber sees an epoch whole or not at all.  This package is pure: it is fed messages and
gives messages.  ``server/topics.py`` serves it to clients, ``TOPICS.md`` says what is promised.

Source: Strymon's publish-subscribe protocol; times, antichains and capabilities are timely dataflow's.
"""
