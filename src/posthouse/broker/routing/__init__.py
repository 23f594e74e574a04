"""Routing from an exchange and a message to queues: pure and synchronous."""
