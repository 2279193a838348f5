"""What one broker does at the sizes of a large cluster: its metadata, its connections, its consumer groups.

- `metadata.py`: a real broker in a cluster of hundreds that exist in etcd alone.
- `connections.py`: a real broker with thousands of idle connections and groups.
- `report.py`: figures for people.
"""
