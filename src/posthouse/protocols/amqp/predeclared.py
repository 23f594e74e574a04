"""The exchanges that are in every namespace from the beginning."""

from posthouse.broker.routing.definitions import ExchangeDefinition, ExchangeKind

PREDECLARED = (
    ExchangeDefinition(name="amq.direct", kind=ExchangeKind.DIRECT),
    ExchangeDefinition(name="amq.fanout", kind=ExchangeKind.FANOUT),
    ExchangeDefinition(name="amq.topic", kind=ExchangeKind.TOPIC),
    ExchangeDefinition(name="amq.headers", kind=ExchangeKind.HEADERS),
    ExchangeDefinition(name="amq.match", kind=ExchangeKind.HEADERS),
)
