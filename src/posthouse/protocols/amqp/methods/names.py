"""Names as clients give them."""

from posthouse.protocols.amqp.errors import access_refused

_RESERVED = "amq."


def stripped(name: str) -> str:
    """Without line ends, as RabbitMQ takes them: some programs read names from files."""
    return name.replace("\r", "").replace("\n", "")


def check_not_reserved(kind: str, name: str) -> None:
    if name.startswith(_RESERVED):
        raise access_refused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")


def check_not_default(*exchanges: str) -> None:
    if not all(exchanges):
        raise access_refused("operation not permitted on the default exchange")
