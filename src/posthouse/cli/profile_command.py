"""`posthouse profile …`: name the address of a broker and a login, to use them without typing them again."""

from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli.options import Json
from posthouse.cli.output import print_json, print_table, say

app = typer.Typer(
    name="profile",
    help="Name the address of a broker and a login, and use them by that name.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")]
Replace = Annotated[
    bool, typer.Option("--replace", metavar="", help="Replace the profile if there is one of this name.")
]
BootstrapOption = Annotated[
    str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="Address for Kafka clients.")
]
AdminOption = Annotated[
    str | None, typer.Option("--admin", metavar="HOST:PORT", help="Address for operators (HTTP).")
]
Tls = Annotated[
    bool, typer.Option("--tls", metavar="", help="Use TLS, and trust the authorities of the system.")
]
Ca = Annotated[
    Path | None,
    typer.Option("--ca", "--tls-ca", metavar="FILE", help="Use TLS, and trust this authority (PEM)."),
]
Certificate = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Use TLS, and present this client certificate (PEM).")
]
Key = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Private key of the certificate, if in another file.")
]
User = Annotated[str | None, typer.Option(metavar="USER", help="User to log in as.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the password in its first line. The password itself is never stored; without a file "
        "it is asked for, or taken from POSTHOUSE_PASSWORD.",
    ),
]
Mechanism = Annotated[str | None, typer.Option(metavar="NAME", help="SASL mechanism.")]


@app.command(
    epilog="`posthouse profile create prod --bootstrap broker.example:9093 --admin broker.example:15671 "
    "--ca ca.pem --user alice --password-file ~/.posthouse-password`"
)
def create(
    name: Name,
    bootstrap: BootstrapOption = None,
    admin: AdminOption = None,
    tls: Tls = False,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    user: User = None,
    password_file: PasswordFile = None,
    mechanism: Mechanism = None,
    replace: Replace = False,
    json: Json = False,
) -> None:
    """Create a profile. Use it with --profile NAME, POSTHOUSE_PROFILE or 'posthouse profile use'."""
    from posthouse.cli.profiles import Profile, load_profiles, profiles_file, save_profiles
    from posthouse.client.errors import BadArgument

    file = profiles_file()
    profiles = load_profiles(file)
    if name in profiles.by_name and not replace:
        raise BadArgument(f"there is a profile {name!r} already; give --replace, or choose another name")
    profile = Profile(
        bootstrap=bootstrap,
        admin=admin,
        tls=tls or None,
        ca=_absolute(ca),
        certificate=_absolute(certificate),
        key=_absolute(key),
        user=user,
        password_file=_absolute(password_file),
        mechanism=mechanism,
    )
    profile.check()
    save_profiles(file, profiles.with_profile(name, profile))
    if json:
        print_json({"profile": name, "created": True})
    else:
        say(
            f"created profile {name!r}; use it with --profile {name}, or always with "
            f"'posthouse profile use {name}'"
        )


@app.command("list", epilog="`posthouse profile list`")
def list_profiles(json: Json = False) -> None:
    """List the profiles; the one in use has a star."""
    from posthouse.cli.profiles import load_profiles, profiles_file

    profiles = load_profiles(profiles_file())
    found = sorted(profiles.by_name.items())
    if json:
        print_json(
            [{"profile": name, "in_use": name == profiles.current, **each.items()} for name, each in found]
        )
    elif found:
        rows = [
            (
                "*" if name == profiles.current else "",
                name,
                *(value or "-" for value in (each.bootstrap, each.admin, each.user)),
            )
            for name, each in found
        ]
        print_table(("", "profile", "bootstrap", "admin", "user"), rows)
    else:
        say("there are no profiles yet; make one with 'posthouse profile create'")


@app.command(epilog="`posthouse profile show prod`")
def show(name: Name, json: Json = False) -> None:
    """Show what a profile says."""
    from posthouse.cli.profiles import load_profiles, profiles_file

    said = load_profiles(profiles_file()).named(name).items()
    if json:
        print_json({"profile": name, **said})
    else:
        print_table(("option", "value"), said.items())


@app.command(epilog="`posthouse profile use prod`\n\n`posthouse profile use --none`")
def use(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the profile.")] = None,
    none: Annotated[bool, typer.Option("--none", metavar="", help="Use no profile any more.")] = False,
    json: Json = False,
) -> None:
    """Use a profile from now on, in commands that name neither a profile nor an address."""
    from posthouse.cli.profiles import load_profiles, profiles_file, save_profiles

    if none == (name is not None):
        raise typer.BadParameter("give one of them", param_hint="NAME and --none")
    file = profiles_file()
    save_profiles(file, load_profiles(file).using(name))
    if json:
        print_json({"profile": name})
    else:
        say("no profile is used from now on" if name is None else f"profile {name!r} is used from now on")


@app.command(epilog="`posthouse profile delete prod`")
def delete(name: Name, json: Json = False) -> None:
    """Delete a profile."""
    from posthouse.cli.profiles import load_profiles, profiles_file, save_profiles

    file = profiles_file()
    save_profiles(file, load_profiles(file).without(name))
    if json:
        print_json({"profile": name, "deleted": True})
    else:
        say(f"deleted profile {name!r}")


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.expanduser().absolute()
