"""`posthouse storage …`: create, migrate, inspect and check the storage that several brokers share."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.byte_progress import byte_progress
from posthouse.cli.options import Json
from posthouse.cli.output import complain, counted, or_dash, print_json, print_table, say
from posthouse.cli.scope_ranges import shortened
from posthouse.cli.storage_place import ConfigFile, DatabaseUrl, ObjectsUrl, database_url, storage_urls
from posthouse.cli.storage_screen import status_lines
from posthouse.cli.storage_transfer import export_data, import_data
from posthouse.model.excerpts import printable

if TYPE_CHECKING:
    from posthouse.storage.shared.administration.administration import SharedFinding

app = typer.Typer(
    name="storage",
    help="Create, migrate, inspect and check the storage that several brokers share.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

app.command(
    "import",
    epilog="`posthouse storage import /var/lib/posthouse --database postgresql://broker@db/posthouse "
    "--objects s3://bucket/prefix`",
)(import_data)
app.command(
    "export",
    epilog="`posthouse storage export /var/lib/posthouse --database postgresql://broker@db/posthouse "
    "--objects s3://bucket/prefix`",
)(export_data)

_BROKER_COLUMNS = ("id", "broker", "role", "seen", "version", "rack", "addresses")
_LEASE_COLUMNS = ("lease of", "epoch", "left", "scopes", "holds")
_SLOT_COLUMNS = ("slot", "state", "runs", "bytes")

Role = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Role of PostgreSQL that brokers run as: gets what they need."),
]
Yes = Annotated[bool, typer.Option("--yes", metavar="", help="Do not ask.")]


@app.command(
    epilog="`posthouse storage init --database postgresql://owner@db/posthouse --objects s3://bucket/prefix "
    "--role broker`"
)
def init(
    role: Role = None, database: DatabaseUrl = None, objects: ObjectsUrl = None, config: ConfigFile = None
) -> None:
    """Create the tables, check the object store and, with --role, grant a role what a broker needs.

    Brokers create the tables themselves if their role may. With --role they can run as a role that may read
    and write rows, but not create or change tables.
    """
    from posthouse.storage.shared.administration.administration import init_storage

    done, warnings = asyncio.run(init_storage(*storage_urls(database, objects, config), role))
    for warning in warnings:
        complain(warning)
    if done:
        say(f"created the tables, version {done[-1]}")
    else:
        say("the tables were there")
    if role is not None:
        say(f"brokers may run as {role}")


@app.command(epilog="`posthouse storage migrate --database postgresql://owner@db/posthouse`")
def migrate(database: DatabaseUrl = None, config: ConfigFile = None, json: Json = False) -> None:
    """Bring the tables to the version of this release, with a role that may create tables."""
    from posthouse.storage.shared.administration.administration import migrate_storage

    done, version = asyncio.run(migrate_storage(database_url(database, config)))
    if json:
        print_json({"applied": done, "version": version})
    elif done:
        say(f"applied version {', '.join(map(str, done))}")
    else:
        say(f"nothing to do: the tables have version {version}")


@app.command(epilog="`posthouse storage status --database postgresql://broker@db/posthouse`")
def status(database: DatabaseUrl = None, config: ConfigFile = None, json: Json = False) -> None:
    """Show brokers, leases, scopes, tail, segments, objects and replication, as the database has them."""
    from posthouse.storage.shared.administration.administration import storage_status

    found = asyncio.run(storage_status(database_url(database, config)))
    if json:
        print_json(asdict(found))
        return
    for line in status_lines(found):
        print(printable(line))
    if found.brokers:
        print()
        rows = [
            (
                each.id,
                each.name,
                f"{each.role}, draining" if each.is_draining else each.role,
                "signed off" if each.seconds_since_seen is None else f"{each.seconds_since_seen:.1f} s ago",
                each.version,
                or_dash(each.rack),
                ", ".join(f"{name} {address}" for name, address in sorted(each.addresses.items())),
            )
            for each in found.brokers
        ]
        print_table(_BROKER_COLUMNS, rows, right=("id",))
    if found.leases:
        print()
        leases = [
            (
                each.holder,
                each.epoch,
                f"{each.seconds_left:.1f} s" if each.seconds_left else "over",
                len(each.scopes),
                or_dash(shortened(each.scopes)),
            )
            for each in found.leases
        ]
        print_table(_LEASE_COLUMNS, leases, right=("epoch", "left", "scopes"))
    used = [each for each in found.slots if each.state != "free"]
    print()
    slots = [(each.number, each.state, f"{each.runs:,}", f"{each.bytes:,}") for each in used]
    print_table(_SLOT_COLUMNS, slots, right=("slot", "runs", "bytes"))


@app.command(
    epilog="`posthouse storage verify --database postgresql://broker@db/posthouse --objects s3://bucket/prefix`"
)
def verify(
    database: DatabaseUrl = None, objects: ObjectsUrl = None, config: ConfigFile = None, json: Json = False
) -> None:
    """Check every batch of every log with its checksum, the indexes, and the books. Brokers may be running.

    The exit code is 0 if everything is intact and 1 if something is damaged.
    """
    from posthouse.storage.shared.administration.administration import verify_storage

    damage: list[bool] = []

    def tell(finding: SharedFinding) -> None:
        damage.append(finding.is_damage)
        if json:
            print_json({"event": "finding", **asdict(finding)})
        else:
            kind = "DAMAGED" if finding.is_damage else "note"
            print(printable(f"{kind} {finding.place}: {finding.problem}"))

    with byte_progress("checking") as (begin, advance):
        tally = asyncio.run(
            verify_storage(
                *storage_urls(database, objects, config),
                on_total=begin,
                on_progress=advance,
                on_finding=tell,
            )
        )
    is_damaged = any(damage)
    if json:
        print_json({"event": "done", "damaged": is_damaged, **asdict(tally)})
    else:
        verdict = "there is damage, see above" if is_damaged else "no damage was found"
        looked_at = (
            counted(tally.logs, "log"),
            counted(tally.segments, "segment"),
            counted(tally.runs, "run"),
            counted(tally.records, "record"),
            counted(tally.bytes, "byte"),
        )
        say(f"{verdict}; looked at {', '.join(looked_at)}")
    if is_damaged:
        raise typer.Exit(1)


@app.command(
    "accept-loss", epilog="`posthouse storage accept-loss --database postgresql://broker@db/posthouse`"
)
def accept_loss(database: DatabaseUrl = None, config: ConfigFile = None, yes: Yes = False) -> None:
    """Let brokers go on with a database that has lost acknowledged commits.

    Brokers refuse to serve when the database shows less than they have seen: a standby that was behind was
    promoted, or a backup was restored. First try to bring back the database that has all commits. What is
    lost stays lost, and its offsets are given to new records.
    """
    from posthouse.storage.shared.administration.administration import accept_loss as accept

    url = database_url(database, config)
    if not yes:
        typer.confirm("Acknowledged records are lost, and their offsets are used again. Go on?", abort=True)
    asyncio.run(accept(url))
    say("accepted; the brokers go on within a few seconds")
