"""Errors of share sessions. `protocols.kafka.errors` has their codes."""

from posthouse.model.errors import MembershipError


class UnknownShareSession(MembershipError):
    pass


class WrongShareSessionEpoch(MembershipError):
    pass


class TooManyShareSessions(MembershipError):
    pass
