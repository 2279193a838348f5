"""Compares what a bucket holds with what its manifests say.

- `verify`: every object of a topic; `segment_check`: one segment, down to its rows
- `garbage`: objects that nobody needs
"""
