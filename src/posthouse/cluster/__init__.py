"""Brokers that share a storage: a standby passes connections on to the broker that holds the lease."""
