"""Kafka's share groups: members, heartbeats and fetch sessions over the subscriptions of the broker."""
