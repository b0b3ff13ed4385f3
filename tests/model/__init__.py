"""The semantics of a dataspace, as a plain and slow program: what the daemon promises, and nothing of how.

It imports values, their text, and the reader of rules.  Tests compare with it what the product does.

    patterns      which values match a pattern, and what it captures
    expressions   what an expression of a rule is worth
    rules         what follows from facts, and from the past
"""
