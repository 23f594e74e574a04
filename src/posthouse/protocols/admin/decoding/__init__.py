"""Payloads whose form is in a schema: Avro by schemas of a schema registry, Protocol Buffers by numbers."""
