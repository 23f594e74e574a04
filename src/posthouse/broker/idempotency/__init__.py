"""Requests to append with an idempotency key: repeated as often as the client likes, appended once."""
