"""Limits on how fast subscriptions get messages: the funnel."""
