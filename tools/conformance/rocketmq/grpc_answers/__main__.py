"""All steps, one after the other: later ones use what earlier ones have left."""

import asyncio
import sys

from tools.conformance.rocketmq.grpc_answers import (
    acknowledgements,
    members,
    offsets,
    recalls,
    receives,
    routes,
    sends,
    transactions,
)
from tools.conformance.rocketmq.grpc_answers.setup import prepare
from tools.conformance.rocketmq.grpc_answers.steps import Steps, connected


async def main(endpoints: str, remoting: str) -> None:
    await prepare(remoting)
    async with connected(endpoints, "producer") as producer:
        steps = Steps(endpoints, producer)
        for part in (
            routes,
            members,
            sends,
            receives,
            acknowledgements,
            transactions,
            recalls,
            offsets,
        ):
            await part.run(steps)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
