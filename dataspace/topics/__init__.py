"""Topics: publish-subscribe whose subscribers can reason about time.

Publishers send batches stamped with *times* (integers, or tuples under the product order) and say, by
holding and releasing *capabilities*, which times are still to come.  From this follow the two frontiers by
which every subscriber sees an epoch whole or not at all.  Here is what both sides need: times, antichains,
messages and the subscriber, who runs in the client.  The publisher runs in the daemon and is in
``relay/topics``, with ``TOPICS.md``, which says what is promised.  All of it is pure.

Source: Strymon's publish-subscribe protocol; times, antichains and capabilities are timely dataflow's.
"""
