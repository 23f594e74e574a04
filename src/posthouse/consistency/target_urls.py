"""Where a relay sends messages, by URL: kafka://HOST:PORT or amqp://HOST:PORT/VHOST."""

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from posthouse.client.addresses import DEFAULT_PORT
from posthouse.client.errors import BadArgument
from posthouse.consistency.relay import BATCH_SIZE

if TYPE_CHECKING:
    from posthouse.consistency.amqp_target import AmqpTarget
    from posthouse.consistency.kafka_target import KafkaTarget

_EXAMPLES: Final = "kafka://HOST:PORT or amqp://USER:PASSWORD@HOST:PORT/VHOST"
_KAFKA: Final = ("kafka", "kafkas")
_AMQP: Final = ("amqp", "amqps")
_AMQP_BATCH_SIZE: Final = 100
"""If all are of one key, each waits for the confirm of the one before: a lease has to be enough for that."""
_KAFKA_PREFIXES: Final = ("sasl.", "ssl.", "socket.", "security.", "client.", "broker.", "debug")
_AMQP_PARAMETERS: Final = frozenset(
    {"cafile", "capath", "certfile", "keyfile", "heartbeat", "no_verify_ssl", "name", "auth"}
)


def open_target(url: str) -> "KafkaTarget | AmqpTarget":
    """Raises BadArgument."""
    scheme = url.partition(":")[0]
    if scheme in _KAFKA:
        return _kafka(url)
    if scheme in _AMQP:
        return _amqp(url)
    raise BadArgument(f"{shown(url)!r} is no target of a relay; give {_EXAMPLES}")


def batch_size_for(url: str) -> int:
    """How many messages the target is given at a time."""
    return _AMQP_BATCH_SIZE if url.partition(":")[0] in _AMQP else BATCH_SIZE


def shown(url: str) -> str:
    """Without passwords; of a URL in which nothing tells where the password ends, only the scheme."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.partition(":")[0].rpartition("@")[2]
    address, _, query = rest.partition("?")
    return f"{scheme}://" if "@" in query else f"{scheme}://{address.rpartition('@')[2]}"


def kafka_properties(url: str) -> dict[str, str]:
    """Those of librdkafka. Raises BadArgument."""
    parts = urlsplit(url)
    login, _, addresses = parts.netloc.rpartition("@")
    if not addresses or parts.path.strip("/"):
        raise BadArgument(f"{shown(url)!r} has no addresses; give kafka://HOST:PORT,HOST:PORT")
    servers = [each if ":" in each else f"{each}:{DEFAULT_PORT}" for each in addresses.split(",")]
    properties = {"bootstrap.servers": ",".join(servers)}
    has_tls = parts.scheme == "kafkas"
    if login:
        user, _, password = login.partition(":")
        properties |= {"sasl.mechanism": "SCRAM-SHA-256"}
        properties |= {"sasl.username": unquote(user), "sasl.password": unquote(password)}
    if login or has_tls:
        properties["security.protocol"] = f"{'SASL_' if login else ''}{'SSL' if has_tls else 'PLAINTEXT'}"
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if not name.startswith(_KAFKA_PREFIXES):
            raise _unknown(
                name,
                "is no parameter of a kafka:// URL; of librdkafka's those can be given that begin "
                f"with {', '.join(_KAFKA_PREFIXES)}",
            )
        properties[name] = value
    return properties


def _kafka(url: str) -> "KafkaTarget":
    properties = kafka_properties(url)
    try:
        from posthouse.consistency.kafka_target import KafkaTarget
    except ImportError:
        raise _missing("confluent-kafka", "kafka") from None
    return KafkaTarget(properties)


def _amqp(url: str) -> "AmqpTarget":
    parts = urlsplit(url)
    exchange = ""
    # Between two batches nobody would answer heartbeats.
    others = {"heartbeat": "0"}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "exchange":
            exchange = value
        elif name in _AMQP_PARAMETERS:
            others[name] = value
        else:
            known = ", ".join(["exchange", *sorted(_AMQP_PARAMETERS)])
            raise _unknown(name, f"is no parameter of an amqp:// URL; there are {known}")
    if not parts.hostname:
        raise BadArgument(f"{shown(url)!r} has no host; give {_EXAMPLES}")
    try:
        from posthouse.consistency.amqp_target import AmqpTarget
    except ImportError:
        raise _missing("aio-pika", "rabbitmq") from None
    return AmqpTarget(parts._replace(query=urlencode(others, quote_via=quote)).geturl(), exchange)


def _unknown(parameter: str, detail: str) -> BadArgument:
    if "@" in parameter:  # the rest of a password
        return BadArgument("the URL has an '@' behind a '?'; write %3F for a '?' that is part of a password")
    return BadArgument(f"{parameter!r} {detail}")


def _missing(library: str, extra: str) -> BadArgument:
    return BadArgument(f"{library} is not installed; pip install 'posthouse[outbox-{extra}]'")
