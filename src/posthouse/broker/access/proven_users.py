"""Users who have logged in at another broker of the cluster.

That broker may be behind, or cut off from the database: it may have admitted a user who was deleted since, or
whose password was changed. So it tells a digest of the stored credential that it has used, and this broker
compares the digest with one of its own. The key of the digest is derived from the broker's secret, which all
brokers of a cluster share: the digest is of no use to an eavesdropper who guesses passwords.
"""

import hmac
from collections.abc import Callable

from posthouse.broker.access.users import Users
from posthouse.model.errors import LoginFailed
from posthouse.model.proven_user import CERTIFICATE, PLAIN, ProvenUser


class ProvenUsers:
    """Owned by the event loop."""

    def __init__(self, users: Users, key: Callable[[], bytes], *, takes_certificates: bool) -> None:
        """`takes_certificates`: clients may log in with a certificate, on listeners with TLS."""
        self._users = users
        self._key = key
        self._takes_certificates = takes_certificates

    def prove(self, name: str, mechanism: str) -> ProvenUser:
        """To be called when the user has just logged in here: the credential of that moment counts."""
        user = None if mechanism == CERTIFICATE else self._users.get(name)
        credential = None if user is None else user.digest(self._key())
        return ProvenUser(name=name, mechanism=mechanism, credential=credential)

    def check(self, proven: ProvenUser, *, has_tls: bool) -> None:
        """Raises LoginFailed unless the user could log in here, in the same way. `has_tls`: the listener of
        the same name has TLS."""
        if proven.mechanism == CERTIFICATE:
            if not (self._takes_certificates and has_tls):
                raise LoginFailed("a login with a certificate, which this broker does not accept here")
            return
        user = self._users.get(proven.name)
        if user is None or proven.credential is None:
            raise LoginFailed("a login at another broker, of a user who is unknown here")
        if proven.mechanism != PLAIN and proven.mechanism not in user.verifiers:
            raise LoginFailed("a login at another broker, with a mechanism that the user does not have here")
        if not hmac.compare_digest(proven.credential, user.digest(self._key())):
            raise LoginFailed("a login at another broker, with a password that was changed since")
