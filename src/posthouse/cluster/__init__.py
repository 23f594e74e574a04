"""Brokers that share a storage: what members pass on and relay to the coordinator, and hints among all."""
