"""tierlog beside Apache Kafka on one machine in one run.

- `peer/`: Apache Kafka's jars, its broker process and its command-line tools. `service.py`: tierlog's process.
  `process.py`: what the two have in common.
- `client/`: the load generator. `records.py`: what it sends.
- `limits.py`: what the machine can do at all. `workloads.py`: the measured jobs. `plan.py`: which of them, how often.
- `run.py`: carries a plan out. `results.py`: what was found. `report.py`: the same for people.
- `cluster.py`: the same for three brokers, and how long a failover takes (`clusters.py`, `failover.py`).
"""
