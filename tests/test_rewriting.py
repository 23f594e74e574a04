"""Workers of `make test` import every test module once between them."""

from tests.rewriting import share


def test_every_module_is_in_one_share() -> None:
    shares = [share(number, 4) for number in range(4)]
    names = [name for each in shares for name in each]
    assert __name__ in names
    assert len(set(names)) == len(names)
    assert sorted(names) == sorted(share(0, 1))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
