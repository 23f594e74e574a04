"""Secrets at rest."""

import base64
import os
from pathlib import Path

import pytest

from posthouse.broker.webhooks.key_file import make_key, read_key
from posthouse.broker.webhooks.sealing import Sealing
from posthouse.model.errors import InvalidConfig, Unavailable

KEY = bytes(range(32))


def test_what_is_sealed_is_opened_for_its_webhook_only() -> None:
    sealing = Sealing(KEY, os.urandom)
    sealed = sealing.seal(b"secret", "shop")
    assert b"secret" not in sealed
    assert sealing.open(sealed, "shop") == b"secret"
    with pytest.raises(Unavailable, match="damaged"):
        sealing.open(sealed, "other")
    assert sealing.seal(b"secret", "shop") != sealed, "another nonce each time"


def test_damage_is_noticed() -> None:
    sealing = Sealing(KEY, os.urandom)
    sealed = sealing.seal(b"secret", "shop")
    for at in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[at] ^= 1
        with pytest.raises(Unavailable):
            sealing.open(bytes(damaged), "shop")
    with pytest.raises(Unavailable):
        sealing.open(sealed[:20], "shop")


def test_another_key_is_told_from_damage() -> None:
    sealed = Sealing(KEY, os.urandom).seal(b"secret", "shop")
    with pytest.raises(Unavailable, match="another key"):
        Sealing(bytes(32), os.urandom).open(sealed, "shop")


def test_a_key_file(tmp_path: Path) -> None:
    file = tmp_path / "secrets.key"
    (tmp_path / "secrets.key.new").write_text("of a broker that ended meanwhile")
    made = make_key(file, os.urandom)
    assert read_key(file) == made
    assert [each.name for each in tmp_path.iterdir()] == ["secrets.key"]
    for wrong in (b"", b"!!!", base64.b64encode(b"short"), b"\xff\xfe"):
        file.write_bytes(wrong)
        with pytest.raises(InvalidConfig, match="has no key"):
            read_key(file)
