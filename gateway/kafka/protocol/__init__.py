"""The message codec.

- `schema`: how messages are described; `messages/`: the descriptions, written by `generate`
- `readers`, `writers`: functions compiled from them
- `frames`: headers, and what surrounds a message
"""
