"""Settings of topics, brokers and groups under Kafka's names: shown, kept, and changed while a broker runs."""
