"""Pushes messages of topics and queues to HTTP endpoints. What is pushed where is in `broker/webhooks`."""
