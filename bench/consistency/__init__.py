"""An outbox on PostgreSQL, relayed to one broker by different relays that take turns."""
