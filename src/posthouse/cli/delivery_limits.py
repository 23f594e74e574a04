"""`posthouse queue limit` and `posthouse group limit`: how fast all consumers together get messages."""

from http import HTTPStatus
from typing import Annotated, Any

import typer

from posthouse.cli.options import Admin, GroupName, Json, Namespace, complete_queue, open_admin
from posthouse.cli.output import complain, print_json, say
from posthouse.model.rates import FORM, parse_rate, shown_rate

Rate = Annotated[str | None, typer.Option(metavar="RATE", help=f"Most messages per time: {FORM}.")]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1, max=1_000_000, metavar="N", help="Most messages that all consumers together hold unsettled."
    ),
]
NoLimit = Annotated[bool, typer.Option("--none", metavar="", help="Lift the limits.")]
QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Name of the queue.", autocompletion=complete_queue)
]
_OPTIONS = "--rate, --concurrency and --none"


def limit_queue(
    context: typer.Context,
    queue: QueueName,
    rate: Rate = None,
    concurrency: Concurrency = None,
    none: NoLimit = False,
    namespace: Namespace = "/",
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Limit what all consumers of a queue get together, or show the limits. They apply at once.

    What is not given is not limited. The limits stay when the queue is deleted and declared again.
    """
    from posthouse.client.admin_client import part

    wanted = _wanted(context, rate, concurrency, none)
    path = f"/v1/queues/{part(namespace)}/{part(queue)}"
    _report(f"queue {queue!r}", _change(context, admin, path, wanted, none), none, json)


def limit_group(
    context: typer.Context,
    group: GroupName,
    rate: Rate = None,
    concurrency: Concurrency = None,
    none: NoLimit = False,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Limit what all members of a share group or RocketMQ group get together, or show the limits.

    They apply at once, and may be set before the group exists. What is not given is not limited.
    """
    from posthouse.client.admin_client import part

    wanted = _wanted(context, rate, concurrency, none)
    path = f"/v1/groups/{part(group)}"
    _report(f"group {group!r}", _change(context, admin, path, wanted, none), none, json)
    if wanted and not _applies(context, admin, path):
        complain(
            "they do not apply to the members that it has now: fetches of Kafka's consumer groups do not "
            "name their group; set a quota with 'posthouse quota set' instead"
        )


def limits_text(limits: dict[str, Any] | None) -> str:
    """In words."""
    words = []
    if limits is not None and limits.get("rate") is not None:
        words.append(f"at most {shown_rate(limits['rate'])}")
    if limits is not None and limits.get("concurrency") is not None:
        words.append(f"at most {limits['concurrency']:,} unsettled")
    return ", ".join(words) or "no limits"


def _wanted(
    context: typer.Context, rate: str | None, concurrency: int | None, none: bool
) -> dict[str, float]:
    if none and (rate is not None or concurrency is not None):
        raise typer.BadParameter("--none goes alone", ctx=context, param_hint=_OPTIONS)
    wanted: dict[str, float] = {}
    if rate is not None:
        try:
            wanted["rate"] = parse_rate(rate)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=context, param_hint="--rate") from None
    if concurrency is not None:
        wanted["concurrency"] = concurrency
    return wanted


def _change(
    context: typer.Context, admin: str | None, path: str, wanted: dict[str, float], none: bool
) -> dict[str, Any] | None:
    """The limits that were set, or those that apply if none were given."""
    with open_admin(context, admin) as client:
        if none:
            client.delete(f"{path}/limits")
            return None
        if wanted:
            client.put(f"{path}/limits", wanted)
            return wanted
        found: dict[str, Any] | None = client.get(path)["limits"]
        return found


def _applies(context: typer.Context, admin: str | None, path: str) -> bool:
    from posthouse.client.errors import CallRefused

    with open_admin(context, admin) as client:
        try:
            limits = client.get(path)["limits"]
        except CallRefused as refused:
            if refused.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
                raise
            return True  # there is no such group yet, or nobody else may know
    return limits is None or bool(limits["applies"])


def _report(subject: str, limits: dict[str, Any] | None, is_lifted: bool, json: bool) -> None:
    if json:
        print_json({name: (limits or {}).get(name) for name in ("rate", "concurrency")})
    elif is_lifted:
        say(f"{subject}: lifted the limits")
    else:
        say(f"{subject}: {limits_text(limits)}")
