"""The message of a plain login."""

import pytest

from posthouse.protocols.plain import PlainLogin, parse_plain


def test_a_login() -> None:
    assert parse_plain(b"\0alice\0secret") == PlainLogin(b"", b"alice", b"secret")
    assert parse_plain(b"bob\0alice\0") == PlainLogin(b"bob", b"alice", b"")


@pytest.mark.parametrize("message", [b"", b"alice", b"alice\0secret", b"\0alice\0se\0cret"])
def test_what_cannot_be_read(message: bytes) -> None:
    assert parse_plain(message) is None


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(parse_plain(b"\0alice\0secret"))
