"""`posthouse queue limit` and `posthouse group limit`: how fast all consumers together get messages."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.durations import shown_duration
from posthouse.cli.options import Admin, GroupName, Json, Namespace, complete_queue, open_admin
from posthouse.cli.output import complain, print_json, say
from posthouse.model.rates import FORM, parse_rate, shown_rate

if TYPE_CHECKING:
    from posthouse.client.admin_client import AdminClient

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
_RATES_SECONDS = 1.1
"""Between two questions, so that the broker knows rates."""
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
    """Limit what all consumers of a queue get together, or show the limits and the backlog.

    The limits apply at once, and stay when the queue is deleted and declared again. What is not given is
    not limited.
    """
    from posthouse.client.admin_client import part

    wanted = _wanted(context, rate, concurrency, none)
    path = f"/v1/queues/{part(namespace)}/{part(queue)}"
    _act(context, admin, path, f"queue {queue!r}", wanted, none, json)


def limit_group(
    context: typer.Context,
    group: GroupName,
    rate: Rate = None,
    concurrency: Concurrency = None,
    none: NoLimit = False,
    json: Json = False,
    admin: Admin = None,
) -> None:
    """Limit what all members of a share group or RocketMQ group get together, or show limits and backlog.

    The limits apply at once, and may be set before the group exists. What is not given is not limited.
    """
    from posthouse.client.admin_client import part

    wanted = _wanted(context, rate, concurrency, none)
    path = f"/v1/groups/{part(group)}"
    _act(context, admin, path, f"group {group!r}", wanted, none, json)
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


def _act(
    context: typer.Context,
    admin: str | None,
    path: str,
    subject: str,
    wanted: dict[str, float],
    none: bool,
    json: bool,
) -> None:
    """Set the limits, lift them, or show those that apply and what they do."""
    with open_admin(context, admin) as client:
        if not none and not wanted:
            _show(subject, _described(client, path), json)
            return
        if none:
            client.delete(f"{path}/limits")
        else:
            client.put(f"{path}/limits", wanted)
    if json:
        print_json({name: wanted.get(name) for name in ("rate", "concurrency")})
    else:
        say(f"{subject}: {'lifted the limits' if none else limits_text(wanted)}")


def _described(client: AdminClient, path: str) -> dict[str, Any]:
    """With rates: the broker knows them if it was asked some seconds before."""
    found: dict[str, Any] = client.get(path)
    if found["flow"] is not None and found["flow"]["in_rate"] is None:
        time.sleep(_RATES_SECONDS)
        found = client.get(path)
    return found


def _show(subject: str, found: dict[str, Any], json: bool) -> None:
    limits, flow = found["limits"], found["flow"]
    if json:
        shown = {name: (limits or {}).get(name) for name in ("rate", "concurrency", "held_back_seconds")}
        print_json(shown | {"flow": flow})
        return
    say(f"{subject}: {limits_text(limits)}")
    if flow is not None:
        say(_flow_text(flow))


def _flow_text(flow: dict[str, Any]) -> str:
    backlog = f"backlog {flow['backlog']:,}"
    if flow["in_rate"] is None:
        return backlog
    rates = f"{flow['in_rate']:,.1f}/s in, {flow['out_rate']:,.1f}/s out, {backlog}"
    if not flow["backlog"]:
        return rates
    drain = flow["drain_seconds"]
    return f"{rates}, {'not draining' if drain is None else f'empty in {shown_duration(drain * 1000)}'}"


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
