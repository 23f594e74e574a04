"""A message broker in Python: one log, every client, Spark inside."""

__version__ = "0.1.0"
