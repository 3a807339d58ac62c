"""Writes requests to the topic that the server reads, and prints the answers and the dead letters.

    python send.py --create-topics
    python send.py --servers localhost:9092

Needs the package confluent-kafka.
"""

import argparse
import json
import time
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

REQUESTS, ANSWERS, DEAD_LETTERS = "iris-requests", "iris-answers", "iris-requests-dead-letters"
FLOWERS = {"setosa": [5.1, 3.5, 1.4, 0.2], "versicolor": [6.1, 2.8, 4.7, 1.2], "virginica": [6.7, 3.0, 5.2, 2.3]}


def main() -> None:
    """Sends a request for each flower, and one that is no request."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for the answers")
    parser.add_argument("--create-topics", action="store_true", help="create the topics, and do nothing else")
    arguments = parser.parse_args()
    if arguments.create_topics:
        admin = AdminClient({"bootstrap.servers": arguments.servers})
        for created in admin.create_topics([NewTopic(name, 1) for name in (REQUESTS, ANSWERS, DEAD_LETTERS)]).values():
            created.result(arguments.timeout)
        return
    run = uuid.uuid4().hex[:8]
    producer = Producer({"bootstrap.servers": arguments.servers})
    for name, row in FLOWERS.items():
        tensor = {"name": "input-0", "datatype": "FP32", "shape": [1, 4], "data": row}
        producer.produce(REQUESTS, json.dumps({"inputs": [tensor]}), key=f"{run}-{name}")
    producer.produce(REQUESTS, "not a request", key=f"{run}-broken")
    producer.flush()

    consumer = Consumer(
        {
            "bootstrap.servers": arguments.servers,
            "group.id": f"send-{run}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
    consumer.subscribe([ANSWERS, DEAD_LETTERS])
    missing = {f"{run}-{name}" for name in [*FLOWERS, "broken"]}
    end = time.monotonic() + arguments.timeout
    while missing and time.monotonic() < end:
        record = consumer.poll(0.5)
        if record is None or record.error() or (record.key() or b"").decode() not in missing:
            continue
        key = record.key().decode()
        missing.discard(key)
        name = key.removeprefix(f"{run}-")
        if record.topic() == DEAD_LETTERS:
            print(f"{name}: {dict(record.headers())['mlserver-error'].decode()}")
        else:
            outputs = {output["name"]: output["data"] for output in json.loads(record.value())["outputs"]}
            print(f"{name}: class {outputs['predict'][0]}")
    consumer.close()
    if missing:
        raise SystemExit(f"no answers within {arguments.timeout} s: {sorted(missing)}")


if __name__ == "__main__":
    main()
