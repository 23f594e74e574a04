"""From an exchange and a message to its queues: pure and synchronous."""
