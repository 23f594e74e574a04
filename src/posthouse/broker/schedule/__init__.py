"""Delayed messages: kept out of their topics until they are due."""
