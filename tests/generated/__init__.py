"""Programs that are drawn at random, and carried out beside the model of ``tests/model``.

    texts       rules: any construct, over few labels and values
    programs    what owners do, when, and what befalls the space
    kernel      carries a program out on a space in this process
    jobs        what there is to do for a group, and what its members and the daemon do
    groups      carries such a program out on what hands out jobs
    clients     what clients of a daemon send, how, and what befalls their lines and the daemon
    daemon      carries such a program out on a real daemon (``serving``), over its socket and HTTP
    streams     what a client's observation is shown, against the log
    covering    what programs had, alone and two together
    runs        a long run of those, which goes on from where it was stopped
    tables      what of the tables of the product was accepted and refused
    features    which two features act together, and crowd: all of them
    shrinking   makes a program that fails smaller

Values, handles and spans are few, so that facts, messages and rules meet.  A program stays one when something
is left out of it.
"""
