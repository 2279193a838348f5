"""The message codec.

- `schema`: how messages are described; `messages/`: the descriptions, written by `generate`
- `codec`: readers and writers compiled from them
- `frames`: headers, and what goes around a message
"""
