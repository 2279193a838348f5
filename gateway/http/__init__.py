"""The HTTP API: every record that Kafka clients write and read, for services that speak plain HTTP. See docs/HTTP.md.

- `app`: the route table, and exceptions become problem documents; `server`: the listener, its limits, draining
- `operation`, `parameters`, `schemas`, `topic_settings`: what a request may be, declared once; `openapi`: the same
  as /openapi.json; `problems`: every refusal and its status
- `write_routes`, `producer`, `partitioner`: producing; single posts share batches
- `read_routes`, `message_codec`: consuming as JSON, NDJSON or Arrow
- `topic_routes`, `group_routes`, `dead_letter_routes`, `service_routes`: everything else by its noun
- `metrics`, `exposition`: what is counted, and how Prometheus sees it
"""
