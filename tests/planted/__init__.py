"""Planted defects: the product with one small mistake, to show that the generated tests find it.

    planting    puts a defect into a module while it is imported, and counts how often its place is executed
    defects     the table: where each defect goes, and which tests should find it
    of_*        its rows, by what they break
    finding     runs the generated tests with one defect after the other
    starting    a daemon of the tests with a defect

A row has a module, a qualified name in it, one statement or expression that is there, and what takes its
place.  Both are compared as syntax trees, so layout and line numbers do not matter.  ``make planted`` prints
which are found.  The place of a defect that is not found was executed, or not: the first is a gap of the
model, the second of the generator.
"""
