"""tierlog beside Apache Kafka on one machine in one run.

- `peer/`: Apache Kafka's jars, its broker process and its command-line tools.
- `process.py`: what both brokers' processes have in common; `service.py`: tierlog's process.
- `limits.py`: what the machine can do at all. `workloads.py`: the measured jobs. `plan.py`: which jobs, how often.
- `report.py`: ratios, table, JSON, plot. `__main__.py`: the command.
"""
