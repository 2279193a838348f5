"""The HTTP API and its OpenAPI document."""
