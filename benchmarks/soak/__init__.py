"""One broker under steady load for hours: does anything grow?

- `pace.py`: how fast things come and go, for a run of so many minutes.
- `clients.py`: the load. `check.py`: what must be readable when it has ended.
- `samples.py`: memory, open files, threads and latencies over time. `slopes.py`: whether they grow.
- `report.py`: the same for people.
"""
