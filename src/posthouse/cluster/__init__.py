"""Brokers that share a storage: what they pass on and relay to the holder of a scope, and hints among all."""
