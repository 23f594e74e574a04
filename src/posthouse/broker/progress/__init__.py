"""Stored progress: which positions of a lane or partition are settled. Below queues and subscriptions."""
