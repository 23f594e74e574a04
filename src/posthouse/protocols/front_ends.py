"""The protocols that the broker serves, in the order in which they are shown."""

from typing import Final

from posthouse.protocols.admin.front_end import ADMIN_FRONT_END
from posthouse.protocols.amqp.front_end import AMQP_FRONT_END
from posthouse.protocols.front_end import FrontEnd
from posthouse.protocols.kafka.front_end import KAFKA_FRONT_END
from posthouse.protocols.rocketmq.front_end import ROCKETMQ_FRONT_END
from posthouse.protocols.rocketmq.grpc.front_end import ROCKETMQ_GRPC_FRONT_END

FRONT_ENDS: Final[tuple[FrontEnd, ...]] = (
    KAFKA_FRONT_END,
    AMQP_FRONT_END,
    ADMIN_FRONT_END,
    ROCKETMQ_FRONT_END,
    ROCKETMQ_GRPC_FRONT_END,
)
