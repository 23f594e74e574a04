"""Which addresses may be connected to: by address, whatever a name or a notation says."""

import pytest

from posthouse.webhooks.allowed_targets import AllowedTargets
from posthouse.webhooks.failures import NoAnswer

REFUSED = (
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.5.4",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b:1::a00:1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
)
PUBLIC = ("1.1.1.1", "93.184.215.14", "2606:4700::1111", "64:ff9b::101:101", "2002:101:101::1")


@pytest.mark.parametrize("address", REFUSED)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    with pytest.raises(NoAnswer, match="which is not public"):
        AllowedTargets([]).check("evil.example", [address], has_tls=True)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed_with_tls(address: str) -> None:
    AllowedTargets([]).check("shop.example", [address], has_tls=True)
    with pytest.raises(NoAnswer, match="only https is allowed"):
        AllowedTargets([]).check("shop.example", [address], has_tls=False)


def test_one_bad_address_of_several_is_enough() -> None:
    with pytest.raises(NoAnswer, match=r"10\.0\.0\.1"):
        AllowedTargets([]).check("evil.example", ["1.1.1.1", "10.0.0.1"], has_tls=True)


def test_networks_that_are_named_are_allowed() -> None:
    targets = AllowedTargets(["10.1.0.0/16", "fd00::/8"])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::5"):
        targets.check("inside.example", [address], has_tls=False)
    for address in ("10.2.0.1", "127.0.0.1", "fc00::1", "::1"):
        with pytest.raises(NoAnswer):
            targets.check("inside.example", [address], has_tls=True)


def test_what_an_ipv6_address_carries_is_looked_at_even_if_the_address_is_allowed() -> None:
    with pytest.raises(NoAnswer):
        AllowedTargets(["2002::/16"]).check("evil.example", ["2002:7f00:1::"], has_tls=True)
