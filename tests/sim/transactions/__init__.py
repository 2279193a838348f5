"""Transactions in simulated time: the pure cores of production, joined by messages that are late, lost and doubled.

rules        which functions decide, and mutants of them that the checker must catch
network      questions that are asked again
partition    a log: producers, markers, how far it is stable, what a reader and the archive get; changes of its leader
coordinator  the machine of transactions on a journal of which the end may be lost
clients      applications, their zombies, and readers
simulation   one run: a seed in; the checker of `tests.chaos.transactions` has the last word

A replica that becomes leader has all that is committed and any part of the rest; how replicas agree on that is what
the simulation of the cluster is for.
"""
