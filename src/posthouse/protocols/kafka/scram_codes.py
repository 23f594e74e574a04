"""SCRAM mechanisms in Kafka's codes."""

from posthouse.model.scram import Mechanism
from posthouse.protocols.kafka.errors import ErrorCode, Refused

MECHANISM_CODES = {Mechanism.SHA_256: 1, Mechanism.SHA_512: 2}
_MECHANISMS = {code: mechanism for mechanism, code in MECHANISM_CODES.items()}


def mechanism_of(code: int) -> Mechanism:
    """Raises Refused."""
    mechanism = _MECHANISMS.get(code)
    if mechanism is None:
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {code}")
    return mechanism
