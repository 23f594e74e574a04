"""Which positions of a lane or partition are settled, which is stored, and which are leased. Below queues and
subscriptions."""
