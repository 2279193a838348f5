"""Transactions under faults, judged by what clients were told, what they read, and what lies in the bucket.

- `history.py`: what clients did and saw. `checker.py`: what must hold of it; pure, with books of its own.
- `workload.py`: transactions over several topics, with aborts on purpose; consume, transform and produce; readers.
- `bucket.py`: the rows of the bucket, as a plain glob of Parquet files finds them.
- `run.py`: one run from the topics to the verdict.
"""
