"""The semantics of a dataspace, as a plain and slow program: what the daemon promises, and nothing of how.

It imports values, their text, and the reader of rules.  Tests compare with it what the product does.

    patterns      which values match a pattern, and what it captures
    conditions    what a turn may expect of the state before it
    expressions   what an expression of a rule is worth
    rules         what follows from facts, and from the past
    daemon        sessions, leases, turns that are sent again, and what explains what was seen
    groups        how members divide items, each of which is done once
    topics        what becomes of what producers send, and what subscribers are shown
    locks         who holds a lock
    space         facts, who claims them, and one turn after another
    daemon        sessions and leases, and what explains what was seen
"""
