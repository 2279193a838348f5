"""`tierlog demo`: a real broker in its own process, real traffic, and a report of what was checked.

- `orders`: the events of an invented shop
- `traffic`: how they get in and out: through a Kafka client if one is installed, else through HTTP
- `story`: the acts, in order, each with what it proves
- `report`: what the user sees of it
"""
