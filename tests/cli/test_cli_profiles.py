"""Named profiles, and login options behind the command."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.cli.invocation import Invocation
from posthouse.cli.profiles import Profile, Profiles, load_profiles, profiles_file, save_profiles
from posthouse.client.errors import BadArgument
from posthouse.testing import ThreadBroker
from tests.certificates import Authority
from tests.cli.programs import inside, one_sentence
from tests.tls_brokers import tls_broker

ADMIN = "admin's own"


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return tmp_path / "settings" / "posthouse" / "profiles.toml"


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[ThreadBroker]:
    with tls_broker(authority, {"admin": ADMIN}) as running:
        yield running


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(ADMIN + "\n")
    file.chmod(0o600)
    return file


def ok(*arguments: str | Path) -> str:
    done = inside(*arguments)
    assert done.returncode == 0, done
    return done.stdout


def test_a_profile_lives_and_dies(
    broker: ThreadBroker, authority: Authority, secret: Path, settings: Path
) -> None:
    login = ("--tls-ca", authority.file, "--user", "admin", "--password-file", secret)
    ok("profile", "create", "prod", "--bootstrap", broker.kafka_tls, *login)
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert ADMIN not in settings.read_text()
    assert "there is no profile 'prd' (there are: prod)" in one_sentence(
        inside("--profile", "prd", "topic", "list"), 2
    )
    ok("--profile", "prod", "topic", "list")
    ok("topic", "list", "--profile", "prod")
    ok("profile", "use", "prod")
    ok("topic", "list")
    [listed] = json.loads(ok("profile", "list", "--json"))
    assert (listed["profile"], listed["in_use"], listed["bootstrap"]) == ("prod", True, broker.kafka_tls)
    assert ok("profile", "list").splitlines()[1].split() == ["*", "prod", broker.kafka_tls, "-", "admin"]
    shown = json.loads(ok("profile", "show", "prod", "--json"))
    assert shown == {
        "profile": "prod",
        "bootstrap": broker.kafka_tls,
        "ca": str(authority.file),
        "user": "admin",
        "password_file": str(secret),
    }
    assert "there is a profile 'prod' already; give --replace" in one_sentence(
        inside("profile", "create", "prod", "--bootstrap", "127.0.0.1:1"), 2
    )
    ok("profile", "create", "prod", "--bootstrap", "127.0.0.1:1", "--replace")
    assert "no broker answers at 127.0.0.1:1" in one_sentence(inside("topic", "list"), 1)
    ok("profile", "delete", "prod")
    assert load_profiles(settings) == Profiles()
    assert "there is no profile 'prod'" in one_sentence(inside("profile", "delete", "prod"), 2)


def test_a_profile_logs_in_by_http(broker: ThreadBroker, authority: Authority, secret: Path) -> None:
    login = ("--ca", authority.file, "--user", "admin", "--password-file", secret)
    ok("profile", "create", "night", "--admin", broker.address("admin_tls"), *login)
    assert json.loads(ok("queue", "list", "--profile", "night", "--json")) == []
    assert '"ready": true' in ok("--profile", "night", "status", "--json")
    nobody = inside("queue", "list", "--admin", broker.address("admin"))
    assert "give --user, or use a profile with a login" in one_sentence(nobody, 1)


def test_a_profile_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    ok("profile", "create", "here", "--bootstrap", "127.0.0.1:1")
    monkeypatch.setenv("POSTHOUSE_PROFILE", "here")
    assert "no broker answers at 127.0.0.1:1" in one_sentence(inside("topic", "list"), 1)


def test_options_count_more_than_a_profile(settings: Path) -> None:
    profile = Profile(bootstrap="a:1", admin="b:2", tls=True, user="u", mechanism="PLAIN")
    save_profiles(settings, Profiles(by_name={"p": profile}, current="p"))
    stored = Invocation(password="x")
    assert (stored.kafka_address, stored.admin_address) == ("a:1", "b:2")
    assert (stored.security().user, stored.security().tls) == ("u", True)
    named = Invocation(profile="p", bootstrap="c:3", user="other", password="x")
    assert (named.kafka_address, named.admin_address) == ("c:3", "b:2")
    assert (named.security().user, named.security().mechanism) == ("other", "PLAIN")


def test_an_address_sets_the_profile_in_use_aside(settings: Path) -> None:
    profile = Profile(bootstrap="a:1", tls=True, user="u", password_file=Path("/no/such"))
    save_profiles(settings, Profiles(by_name={"p": profile}, current="p"))
    other = Invocation(bootstrap="c:3")
    assert (other.kafka_address, other.admin_address) == ("c:3", "127.0.0.1:15672")
    assert other.security().user is None and not other.security().tls


def test_the_password_of_a_profile_is_that_of_its_user(settings: Path, secret: Path) -> None:
    save_profiles(settings, Profiles(by_name={"p": Profile(user="u", password_file=secret)}))
    assert Invocation(profile="p").security().password == ADMIN
    with pytest.raises(BadArgument, match="the password of 'other' is missing"):
        Invocation(profile="p", user="other").security()


def test_login_options_behind_the_command(broker: ThreadBroker, authority: Authority, secret: Path) -> None:
    login = ("--ca", authority.file, "--user", "admin", "--password-file", secret)
    ok("topic", "list", "--bootstrap", broker.kafka_tls, *login)
    # `acl list --user` is the user whose permissions are listed.
    before = ("--user", "admin", "--password-file", secret)
    ok(*before, "acl", "list", "--user", "ann", "--bootstrap", broker.kafka_tls, "--ca", authority.file)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("nonsense", "is not valid TOML"),
        ("profiles = 3", "holds no profiles"),
        ("[profiles]\np = 3", "profile 'p' is no table"),
        ("[profiles.p]\npassword = 'x'", "has an unknown key 'password'; delete it"),
        ("[profiles.p]\ntls = 'yes'", "tls of profile 'p' has the wrong type"),
    ],
)
def test_a_file_that_was_damaged(settings: Path, text: str, part: str) -> None:
    settings.parent.mkdir(parents=True)
    settings.write_text(text)
    assert part in one_sentence(inside("topic", "list"), 2)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--bootstrap", "a:b:c"], "'a:b:c' is not an address; write HOST:PORT"),
        (["--admin", "ftp://x"], "is not an address; write HOST:PORT"),
        (["--user", "u", "--mechanism", "MAGIC"], "'MAGIC' is not a SASL mechanism; use one of"),
        ([], "the profile would say nothing; give --bootstrap, --admin or a login"),
    ],
)
def test_a_profile_is_checked_when_it_is_made(options: list[str], part: str, settings: Path) -> None:
    assert part in one_sentence(inside("profile", "create", "p", *options), 2)
    assert not settings.exists()


def test_a_user_is_not_told_that_there_is_nothing(
    broker: ThreadBroker, authority: Authority, secret: Path
) -> None:
    login = ("--ca", authority.file, "--user", "admin", "--password-file", secret)
    for command, address in (
        (["topic", "list"], ("--bootstrap", broker.kafka_tls)),
        (["group", "list"], ("--bootstrap", broker.kafka_tls)),
        (["queue", "list"], ("--admin", broker.address("admin_tls"))),
    ):
        done = inside(*command, *address, *login)
        assert (done.returncode, done.stderr) == (0, f"there are no {command[0]}s that you may see\n")


def test_names_and_places(tmp_path: Path, settings: Path) -> None:
    assert "cannot name a profile" in one_sentence(inside("profile", "create", "a.b", "--tls"), 2)
    assert "give one of them" in one_sentence(inside("profile", "use"), 2)
    assert profiles_file({"XDG_CONFIG_HOME": "relative"}) == profiles_file({})
    odd = Profiles(by_name={"p": Profile(user='quo"te\\\n\x7fü')}, current="p")
    save_profiles(settings, odd)
    assert load_profiles(settings) == odd
