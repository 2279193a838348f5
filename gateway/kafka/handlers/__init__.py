"""One module per noun; each exposes `HANDLERS`, from API key to `gateway.kafka.handler.Handler`."""
