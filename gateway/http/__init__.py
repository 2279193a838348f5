"""The HTTP API: services that speak HTTP write and read the same records as Kafka clients. See docs/HTTP.md.

- `app`: the route table; turns exceptions into problem documents; `server`: the listener, its limits, draining
- `operation`, `parameters`, `schemas`, `archive_schemas`, `topic_settings`: what a request may be, declared once;
  `openapi`: the same as /openapi.json; `problems`: every refusal and its status
- `routes`: the operations, one module per noun
- `producer`, `partitioner`, `message_batch`: producing; single posts share batches
- `message_codec`, `sending`: consuming as JSON, NDJSON or Arrow
- `body`, `budget`, `sites`: limits of requests, and which web pages may send them
- `peers`: requests to other brokers
- `metrics`: what is counted, and how Prometheus sees it
"""
