"""One module per noun; each exposes `HANDLERS`, from API key to `gateway.kafka.handler.Handler`.

Two do not: `api_versions` needs the table of all handlers, and `fetch` calls `replica_fetch` for followers.
"""
