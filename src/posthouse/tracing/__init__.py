"""Spans of messages on their way, by OpenTelemetry.

Only `message_spans` and `exporting` import opentelemetry, and they are imported only where tracing is on.
"""
