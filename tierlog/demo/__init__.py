"""`tierlog demo`: a real broker in its own process, real traffic, and a report of what was checked.

- `orders`: the events of a made-up shop
- `traffic`: how they get in and out: a Kafka client if one is installed, else HTTP
- `story`: the acts, in order, each with what it proves
- `report`: what a reader sees of it
"""
