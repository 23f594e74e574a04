"""As much of Kafka's `kafka-acls.sh` as librdkafka's tests call, spoken over the protocol."""

import argparse

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tools.conformance.kafka_path import admin_client

SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="kafka-acls.sh", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--add", action="store_true")
    action.add_argument("--remove", action="store_true")
    parser.add_argument("--force", action="store_true", help="Remove without a question, as always here.")
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--operation", required=True)
    for permission in ("allow", "deny"):
        parser.add_argument(f"--{permission}-principal")
        parser.add_argument(f"--{permission}-host", default="*")
    arguments = parser.parse_args()
    admin = admin_client(arguments.bootstrap_server)
    denies = arguments.deny_principal is not None
    described = (
        ResourceType.TOPIC,
        arguments.topic,
        ResourcePatternType.LITERAL,
        arguments.deny_principal if denies else arguments.allow_principal,
        arguments.deny_host if denies else arguments.allow_host,
        AclOperation[arguments.operation.upper()],
        AclPermissionType.DENY if denies else AclPermissionType.ALLOW,
    )
    if arguments.add:
        done = list(admin.create_acls([AclBinding(*described)]).values())
    else:
        done = list(admin.delete_acls([AclBindingFilter(*described)]).values())
    for future in done:
        future.result(SECONDS)


if __name__ == "__main__":
    main()
