"""Subscriptions: partitions whose records are leased to consumers one by one, and settled in any order."""
