"""A cluster in one thread: the real decisions of replication on a simulated network, disk, clock and metadata store.

world       virtual time, processes that can be paused and killed, one source of chance
network     messages that are late, lost, or cut off
store       cluster metadata: compare-and-swap, leases, watches, outages
disk        logs that lose what was not synced when the power goes
rules       which real functions decide, and mutants of them that the checkers must catch
broker      one broker process: joining, image, elections, roles
roles       a partition at its leader and at a follower
clients     producers and consumers, who write down what they were told
checker     what must hold, judged from what was told and what is stored in the end
faults      what goes wrong, as data made from a seed
simulation  one run: a seed in, a report out

A run depends on its seed alone. `python -m tests.sim --seed 17` runs one again and prints what happened;
`python -m tests.sim --seeds 5000` looks for one that fails.
"""
