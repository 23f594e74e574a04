"""As much of Kafka's `kafka-topics.sh` as librdkafka's tests call, spoken over the protocol."""

import argparse

from confluent_kafka.admin import NewPartitions, NewTopic

from tools.conformance.kafka_path import admin_client

SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="kafka-topics.sh", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("create", "alter", "delete"):
        action.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--replication-factor", type=int, default=1)
    parser.add_argument("--config", action="append", default=[])
    arguments = parser.parse_args()
    admin = admin_client(arguments.bootstrap_server)
    if arguments.create:
        config = dict(each.split("=", 1) for each in arguments.config)
        topic = NewTopic(
            arguments.topic,
            num_partitions=arguments.partitions,
            replication_factor=arguments.replication_factor,
            config=config,
        )
        futures = admin.create_topics([topic])
    elif arguments.alter:
        futures = admin.create_partitions([NewPartitions(arguments.topic, arguments.partitions)])
    else:
        futures = admin.delete_topics([arguments.topic])
    futures[arguments.topic].result(SECONDS)


if __name__ == "__main__":
    main()
