"""Compares tierlog with Apache Kafka on one machine in one run.

- `peer/`: Apache Kafka's jars, its broker process and its command-line tools. `service.py`: tierlog's process.
  `process.py`: what the two have in common.
- `client/`: the load generator. `records.py`: what it sends.
- `limits.py`: the limits of the machine. `workloads.py`: the measured jobs. `plan.py`: which jobs run, and how often.
- `run.py`: carries a plan out. `results.py`: the results. `report.py`: the results for people.
- `soak/`: an hour under load. `scale/`: one broker at the sizes of a large cluster.
- `cluster.py`: the same for three brokers, and how long a failover takes (`clusters.py`, `failover.py`).
- `tls.py`: one broker of each with TLS, and what a connection costs.
"""
