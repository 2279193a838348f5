"""What a bucket holds against what its manifests say.

- `verify`: every object of a topic; `segment_check`: one segment, down to its rows
- `garbage`: objects that nobody needs
"""
