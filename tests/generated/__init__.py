"""Programs that are drawn at random, and carried out beside the model of ``tests/model``.

    texts       rules: any construct, over few labels and values
    programs    what owners do, when, and what befalls the space; a program that fails is made smaller
    kernel      carries a program out on a space in this process

Values, handles and spans are few, so that facts, messages and rules meet.  A program stays one when something
is left out of it.
"""
