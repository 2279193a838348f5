"""Three Kafka clients behind one face, so that one behaviour suite runs through each of them unmodified.

`face.py` says what a client can be asked; `confluent.py`, `aio.py` and `kafka_python.py` answer it.
"""
