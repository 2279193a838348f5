"""Three brokers and etcd under faults, judged like the single broker by what clients saw, and by the files left behind.

- `faults.py`: a schedule of faults as data, from a seed. `network.py`: a namespace per broker, cut by nft.
  `inject.py`: carries faults out on the running cluster.
- `wire.py`: single requests to a single broker. `witness.py`: workers that ask every broker by itself, so that a broker
  which leads no more and does not know it has its chance to lie.
- `replicas.py`: the segment files of each broker after a clean stop. `epochs.py`: what must hold of leader epochs.
- `closed.py`: the same cluster with TLS, logins, permissions and an audit, and what the audit has to have.
- `run.py`: one run from the topic to the verdict.
"""
