"""Metrics that clients push to the broker (KIP-714): subscriptions, and the last push of each client."""
