"""Where topics are, and who is to ask which queue."""

from posthouse.protocols.rocketmq.grpc.messages.definition import Address, Endpoints, Resource
from posthouse.protocols.rocketmq.grpc.messages.enums import AddressScheme
from posthouse.protocols.rocketmq.grpc.messages.service import QueryAssignmentRequest, QueryRouteRequest
from tools.conformance.rocketmq.grpc_answers.steps import Steps, connected

HERE = Endpoints(scheme=AddressScheme.IPv4, addresses=(Address(host="127.0.0.1", port=8081),))
ELSEWHERE = Endpoints(
    scheme=AddressScheme.DOMAIN_NAME, addresses=(Address(host="broker.example", port=1234),)
)

_TYPES = "accept_message_types"
"""They are compared where a step is about them."""


def route(topic: str, endpoints: Endpoints | None = HERE) -> QueryRouteRequest:
    return QueryRouteRequest(topic=Resource(name=topic), endpoints=endpoints)


def assignment(topic: str, group: str, endpoints: Endpoints | None = HERE) -> QueryAssignmentRequest:
    return QueryAssignmentRequest(topic=Resource(name=topic), group=Resource(name=group), endpoints=endpoints)


async def run(steps: Steps) -> None:
    await _routes(steps)
    await _assignments(steps)
    async with connected(steps.endpoints, None) as nobody:
        await steps.call("route for a client without an id", route("normal"), nobody)
        await steps.call("assignment for a client without an id", assignment("normal", "group"), nobody)


async def _routes(steps: Steps) -> None:
    await steps.call("route", route("routed"))
    await steps.call("route of a topic of ordered messages", route("ordered"))
    for name, request in (
        ("by another address", route("normal", ELSEWHERE)),
        ("without an address", route("normal", None)),
        ("of an unknown topic", route("nothing")),
        ("without a topic", QueryRouteRequest(endpoints=HERE)),
        ("of a topic without a name", route("")),
        ("of a topic with a blank in its name", route("an swers")),
        ("of a topic with a name of 128 letters", route("t" * 128)),
        ("of TBW102", route("TBW102")),
        ("of SCHEDULE_TOPIC_XXXX", route("SCHEDULE_TOPIC_XXXX")),
        (
            "of an unknown topic in a namespace",
            QueryRouteRequest(topic=Resource(resource_namespace="space", name="nothing"), endpoints=HERE),
        ),
    ):
        await steps.call(f"route {name}", request, None, _TYPES)


async def _assignments(steps: Steps) -> None:
    await steps.call("assignment", assignment("routed", "group"))
    await steps.call("assignment of an ordered group", assignment("routed", "in-order"))
    await steps.call("assignment by another address", assignment("normal", "group", ELSEWHERE))
    await steps.call("assignment without an address", assignment("normal", "group", None))
    await steps.call("assignment of an unknown topic", assignment("unassigned", "group"))
    await steps.call("assignment of an unknown group", assignment("normal", "strangers"))
    await steps.call("assignment without a group", assignment("normal", ""))
    await steps.call("assignment of a group with a blank in its name", assignment("normal", "a group"))
    await steps.call("assignment without a topic", assignment("", "group"))
