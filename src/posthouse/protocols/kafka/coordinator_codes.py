"""How the APIs of transactions say what went wrong, where they differ from the others."""

from posthouse.protocols.kafka.errors import ErrorCode


def coordinator_code(code: ErrorCode, *, knows_fenced: bool = False) -> ErrorCode:
    """`knows_fenced`: the request's version is one whose clients have heard of PRODUCER_FENCED."""
    if code is ErrorCode.INVALID_PRODUCER_EPOCH and knows_fenced:
        return ErrorCode.PRODUCER_FENCED
    if code is ErrorCode.KAFKA_STORAGE_ERROR:
        # Clients know this one of a coordinator, and ask again.
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
