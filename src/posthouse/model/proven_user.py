"""A user who has logged in at one broker of a cluster, as that broker tells another one."""

from dataclasses import dataclass, field

CERTIFICATE = "certificate"
"""The mechanism of a login with a client certificate."""
BROKER = "broker"
"""No user: the other broker asks on its own account, for all of its clients. Only the admin API takes it."""
PLAIN = "PLAIN"
"""The mechanism of a login with a password in the clear (RFC 4616)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenUser:
    name: str
    mechanism: str
    """How the user has logged in."""
    credential: bytes | None = field(default=None, repr=False)
    """A digest of the stored credential that the password was checked with; None without a password."""
