"""gRPC for clients of any protocol that speaks it: calls, metadata, statuses, on HTTP/2 of our own."""
