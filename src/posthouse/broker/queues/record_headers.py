"""Record headers that mean something to queues, whatever protocol wrote them."""

EXCHANGE = b"posthouse.exchange"
"""The exchange that a message was published to; empty for the default one."""
ROUTING_KEY = b"posthouse.routing-key"
"""Takes the place of the record's key when a record of a stream is routed."""
DEATHS = b"posthouse.deaths"
"""See `dead_letters`."""
