"""A cluster in one thread: production code of replication on a simulated network, disk, clock and metadata store.

world       virtual time, processes that can be paused and killed, one source of chance
loop        an event loop in virtual time, for production code
network     messages that are late, lost, or cut off
store       cluster metadata: compare-and-swap, leases, watches, outages
metadata    the store as production code sees it
disk        logs that lose what was not synced when the power goes
rules       which real functions decide, and mutants of them that the checkers must catch
broker      one broker process: joining, image, elections, roles
roles       a partition at its leader and at a follower: the production drivers, watched
clients     producers and consumers, who write down what they were told
checker     what must hold, judged from what was told and what is stored in the end
faults      what goes wrong, as data made from a seed
simulation  one run: a seed in, a report out

bucket               an object store that fails
archive              the production offloader of one broker, on that bucket
archive_checker      what must hold of both tiers, judged at every change
archive_simulation   one run with an archive
archive_mutants      mistakes in archiving that the checkers must catch

transactions         the same for transactions: another, smaller world

A run depends on its seed alone. `python -m tests.sim --seed 17` runs one again and prints what happened;
`python -m tests.sim --seeds 5000` looks for one that fails. With `--archive` brokers archive, with
`--transactions` producers have transactions.
"""
