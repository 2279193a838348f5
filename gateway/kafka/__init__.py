"""The Kafka wire protocol: message codec, connections, and one handler module per noun."""
