"""Finds records by key or message id. An accelerator: what it does not know is read."""
