"""Error codes of the transaction APIs, where they differ from the others."""

from posthouse.protocols.kafka.errors import ErrorCode


def coordinator_code(code: ErrorCode, *, knows_fenced: bool = False) -> ErrorCode:
    """`knows_fenced`: clients of the request's version know PRODUCER_FENCED."""
    if code is ErrorCode.INVALID_PRODUCER_EPOCH and knows_fenced:
        return ErrorCode.PRODUCER_FENCED
    if code is ErrorCode.KAFKA_STORAGE_ERROR:
        # Clients retry on this coordinator error.
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
