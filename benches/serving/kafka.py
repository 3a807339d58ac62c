"""Compares the Kafka server with MLServer 1.7.1 and a bare loop, and counts what is lost when it is killed.

    python3.11 -m venv ENV && ENV/bin/pip install confluent-kafka==2.16.1
    cargo build --profile dist --features kafka
    cargo build --profile dist --features kafka --example kafka_loop
    ENV/bin/python benches/serving/kafka.py rate --ours target/dist/mlserver --loop target/dist/examples/kafka_loop --env ~/.cache/mlserver-bench
    ENV/bin/python benches/serving/kafka.py backlog --ours target/dist/mlserver
    ENV/bin/python benches/serving/kafka.py kill --ours target/dist/mlserver

Starts a broker for itself (`tests/kafka/broker`, which needs Java and Maven), or takes that of `--servers`. The time of an answer is
when the broker appended it to its topic, so that nobody reads the answers while they are written; they are read and checked afterwards.
What is lost, wrong or misses its target ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from run import INFER, MIB, MODELS, REPOSITORY, Failed, Program, Server, install_peer, machine, resident, running, start, stop

MODEL_NAME = "iris-xgboost"
#: Rows of the three classes of the model.
ROWS = [[5.1, 3.5, 1.4, 0.2], [6.1, 2.8, 4.7, 1.2], [6.7, 3.0, 5.2, 2.3]]
BODIES = [
    json.dumps({"inputs": [{"name": "input-0", "shape": [1, 4], "datatype": "FP32", "data": row}]}).encode() for row in ROWS
]
#: The key of records that only find out whether MLServer listens.
PROBE = b"probe"
BACKLOG_TARGET = 200 * MIB
#: What readers of the answers see.
ISOLATION = {"at_least_once": "read_uncommitted", "exactly_once": "read_committed"}
LABELS = {"ours": "mlserver", "loop": "bare loop of librdkafka", "peer": "MLServer 1.7.1"}

# As little work as a model can have.
PEER_MODEL = '''from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Echo(MLModel):
    async def predict(self, payload):
        outputs = [NumpyCodec.encode_output(one.name, self.decode(one, default_codec=NumpyCodec)) for one in payload.inputs]
        return InferenceResponse(model_name=self.name, outputs=outputs)
'''


# --- broker and topics -----------------------------------------------------------------------------------------------


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Starts a broker whose topics are in `folder`; returns its address."""
    command = [str(REPOSITORY / "tests" / "kafka" / "broker"), "run", str(REPOSITORY / "target" / "kafka")]
    process = subprocess.Popen(
        [*command, "--data", str(folder / "broker")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise Failed(f"the broker does not start: exit code {process.wait()}")
        yield line.split()[0]
    finally:
        if process.stdin:
            process.stdin.close()
        process.wait(60)


@dataclass
class Kafka:
    """The broker, and what is known about its topics."""

    servers: str
    partitions: int
    made: int = 0

    def topic(self, name: str) -> str:
        """Creates a topic with a new name, whose records have the time at which the broker appended them."""
        self.made += 1
        name = f"{name}-{os.getpid()}-{self.made}"
        topic = NewTopic(name, self.partitions, 1, config={"message.timestamp.type": "LogAppendTime"})
        client = AdminClient({"bootstrap.servers": self.servers})
        client.create_topics([topic])[name].result(60)
        return name

    def producer(self) -> Producer:
        options = {"linger.ms": 20, "enable.idempotence": True, "log_level": 3}
        return Producer({"bootstrap.servers": self.servers, **options})

    def consumer(self, isolation: str = "read_uncommitted") -> Consumer:
        """A consumer that joins no group, for `assign`."""
        options = {"group.id": f"reader-{os.getpid()}", "enable.auto.commit": False, "isolation.level": isolation}
        options |= {"auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 3}
        return Consumer({"bootstrap.servers": self.servers, **options})

    def committed(self, consumer: Consumer, topic: str) -> int:
        """How many records of a topic the consumer's group has committed."""
        try:
            found = consumer.committed([TopicPartition(topic, number) for number in range(self.partitions)], timeout=60)
        except KafkaException as problem:
            error = problem.args[0]
            # The broker creates the topic of offsets when it meets its first group.
            if error.code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                return 0
            raise
        return sum(max(0, one.offset) for one in found)

    def written(self, consumer: Consumer, topic: str) -> int:
        """How many records a topic holds, the ends of transactions included."""
        total = 0
        for number in range(self.partitions):
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=60)
            total += high
        return total


def send(producer: Producer, topic: str, number: int, failed: list[str]) -> None:
    """Hands the request with a number to the producer."""

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    while True:
        try:
            key = str(number).encode()
            headers = [("mlserver-model", MODEL_NAME.encode())]
            producer.produce(topic, BODIES[number % len(BODIES)], key, headers=headers, on_delivery=delivered)
            return
        except BufferError:
            producer.poll(0.1)


def flush(producer: Producer, failed: list[str]) -> None:
    if producer.flush(120) > 0 or failed:
        raise Failed(f"requests were not delivered: {failed[:3]}")


def fill(kafka: Kafka, topic: str, count: int) -> None:
    """Writes requests to a topic."""
    producer, failed = kafka.producer(), list[str]()
    began = time.perf_counter()
    for number in range(count):
        send(producer, topic, number, failed)
        if number % 1000 == 0:
            producer.poll(0)
    flush(producer, failed)
    print(f"{count} requests written in {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)


@dataclass
class Answers:
    """What has been found in the topic of answers."""

    count: int
    #: How often each request has been answered.
    times: bytearray = field(init=False)
    wrong: list[str] = field(default_factory=list)
    first_ms: int = 0
    last_ms: int = 0

    def __post_init__(self) -> None:
        self.times = bytearray(self.count)

    def take(self, message: Message, expected: list[object]) -> None:
        key, value = message.key(), message.value()
        if key is None or value is None:
            self.wrong.append(f"an answer without key or value: {key!r} {value!r}")
            return
        if key.startswith(PROBE):
            return
        number = int(key)
        if not 0 <= number < self.count:
            self.wrong.append(f"an answer to {number}, which was not asked")
            return
        self.times[number] = min(self.times[number] + 1, 255)
        if outputs_of(value) != expected[number % len(expected)]:
            self.wrong.append(f"{number} was answered {value[:300]!r}")
        _, at = message.timestamp()
        self.first_ms = min(self.first_ms or at, at)
        self.last_ms = max(self.last_ms, at)

    def lost(self) -> int:
        return self.times.count(0)

    def repeated(self) -> int:
        return sum(max(0, times - 1) for times in self.times)

    def rate(self) -> float:
        """Answers per second from the first to the last one."""
        return self.count / max(1, self.last_ms - self.first_ms) * 1000

    def check(self, name: str) -> None:
        if self.wrong:
            raise Failed(f"{name}: {len(self.wrong)} wrong answers: {self.wrong[0]}")
        if self.lost() or self.repeated():
            raise Failed(f"{name}: {self.lost()} of {self.count} requests have no answer, {self.repeated()} have several")


#: The bodies of answers that differ only in their id.
_parsed: dict[bytes, object] = {}


def outputs_of(value: bytes) -> object:
    """The data of an answer; of a request as well, which the bare loop copies."""
    # Every answer has another id; most of the parsing can be spared without it.
    start = value.find(b'"id":"')
    plain = value if start < 0 else value[:start] + value[value.find(b'"', start + 6) + 1 :]
    found = _parsed.get(plain)
    if found is None:
        body = json.loads(value)
        found = [(one["name"], one["data"]) for one in body.get("outputs", body.get("inputs"))]
        if len(_parsed) < 1000:
            _parsed[plain] = found
    return found


def read(kafka: Kafka, topic: str, expected: list[object], count: int, isolation: str = "read_uncommitted") -> Answers:
    """Reads all answers that a topic holds now."""
    answers = Answers(count)
    consumer = kafka.consumer(isolation)
    try:
        unread = set(range(kafka.partitions))
        consumer.assign([TopicPartition(topic, number, 0) for number in unread])
        deadline = time.monotonic() + 120
        while unread:
            for message in consumer.consume(10_000, timeout=0.2):
                deadline = time.monotonic() + 120
                if (error := message.error()) is None:
                    answers.take(message, expected)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise KafkaException(error)
            if time.monotonic() > deadline:
                raise Failed(f"the answers in {topic} cannot be read to their end")
    finally:
        consumer.close()
    return answers


# --- servers ---------------------------------------------------------------------------------------------------------


def kafka_variables(kafka: Kafka, group: str, read_from: str, write_to: str, **more: str) -> dict[str, str]:
    variables = {
        "ENABLED": "true",
        "SERVERS": kafka.servers,
        "TOPIC_INPUT": read_from,
        "TOPIC_OUTPUT": write_to,
        "GROUP_ID": group,
        **{name.upper(): value for name, value in more.items()},
    }
    return {"MLSERVER_DEBUG": "false"} | {f"MLSERVER_KAFKA_{name}": value for name, value in variables.items()}


def ours_program(binary: Path, variables: dict[str, str], name: str = "ours") -> Program:
    return Program(name, lambda port: [str(binary), "start", str(MODELS)], environment=variables)


def expected_answers(program: Program, folder: Path) -> list[object]:
    """What a server answers over REST to each of the rows."""
    with running(program, folder) as server:
        found = []
        for body in BODIES:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            try:
                connection.request("POST", INFER, body, {"content-type": "application/json"})
                response = connection.getresponse()
                text = response.read()
            finally:
                connection.close()
            if response.status != 200:
                raise Failed(f"{program.name} was answered {response.status}: {text[:300]!r}")
            found.append(outputs_of(text))
    if any(found.count(one) > 1 for one in found):
        raise Failed(f"the answers of {program.name} do not tell the rows apart: {found}")
    return found


def processor_seconds(pid: int) -> float:
    """The processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_commits(
    kafka: Kafka, group: str, topic: str, count: int, process: subprocess.Popen[bytes], limit: float, look: Callable[[], None]
) -> None:
    """Waits until a group has committed that many records of a topic. Calls `look` several times a second."""
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": group, "log_level": 3})
    try:
        changed, before = time.monotonic(), -1
        while (now := kafka.committed(consumer, topic)) < count:
            if now != before:
                changed, before = time.monotonic(), now
            if process.poll() is not None:
                raise Failed(f"the server ended with {process.returncode} after {now} of {count} records")
            if time.monotonic() - changed > limit:
                raise Failed(f"no commit for {limit:g} s after {now} of {count} records")
            look()
            time.sleep(0.1)
        look()
    finally:
        consumer.close()


@dataclass
class Round:
    """One measurement."""

    rate: float
    #: Microseconds of processor time for a record, without the broker's.
    processor: float


# --- rate ------------------------------------------------------------------------------------------------------------


def rate(kafka: Kafka, folder: Path, args: argparse.Namespace) -> bool:
    """Records per second of all three."""
    filled = kafka.topic("input")
    fill(kafka, filled, args.records)
    plain = {"MLSERVER_DEBUG": "false"}
    expected = {
        "ours": expected_answers(ours_program(args.ours, plain), folder),
        "loop": [outputs_of(body) for body in BODIES],
    }
    peer = write_peer(folder, args)
    if peer is not None:
        expected["peer"] = expected_answers(Program("peer", peer, environment=plain), folder)
    rounds: dict[str, list[Round]] = {name: [] for name in expected}
    names = list(expected)
    for turn in range(args.rounds):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            group, output = f"{name}-{turn}", kafka.topic(f"{name}-output")
            if name == "peer":
                assert peer is not None
                found = peer_round(kafka, folder, peer, output, expected[name], args)
            else:
                if name == "ours":
                    variables = kafka_variables(kafka, group, filled, output, delivery=args.delivery)
                    started = ours_program(args.ours, variables)
                else:
                    command = [str(args.loop), kafka.servers, group, filled, output]
                    started = Program(name, lambda _port, command=command: command)
                found = backlog_round(kafka, folder, started, group, filled, output, expected[name], args)
            rounds[name].append(found)
            print(f"round {turn + 1}: {name} {found.rate:.0f}/s, {found.processor:.1f} µs", file=sys.stderr, flush=True)
    print(f"\n### One-row requests, {args.records} records, {kafka.partitions} partitions, {args.delivery}\n")
    print("| server | records/s | min | max | µs of processor |\n|---|---:|---:|---:|---:|")
    rates = {name: statistics.median(one.rate for one in found) for name, found in rounds.items()}
    for name, found in rounds.items():
        every = [one.rate for one in found]
        processor = statistics.median(one.processor for one in found)
        print(f"| {LABELS[name]} | {rates[name]:.0f} | {min(every):.0f} | {max(every):.0f} | {processor:.1f} |")
    print("\n| ratio | measured |\n|---|---:|")
    print(f"| ours / bare loop | {rates['ours'] / rates['loop']:.2f} |")
    if "peer" in rates:
        print(f"| ours / MLServer 1.7.1 | {rates['ours'] / rates['peer']:.0f} |")
    return True


def backlog_round(
    kafka: Kafka,
    folder: Path,
    program: Program,
    group: str,
    filled: str,
    output: str,
    expected: list[object],
    args: argparse.Namespace,
) -> Round:
    """Starts a server on a topic that is full, and waits until it is done."""
    if program.name == "loop":
        log = folder / "loop.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(program.command(0), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        server = Server("loop", process, 0, 0, log)
    else:
        server = start(program, folder)
    try:
        wait_for_commits(kafka, group, filled, args.records, server.process, args.limit, lambda: None)
        processor = processor_seconds(server.process.pid)
    except Failed as error:
        raise Failed(f"{program.name}: {error}\n{server.tail()}") from None
    finally:
        stop(server)
    answers = read(kafka, output, expected, args.records, ISOLATION[args.delivery])
    answers.check(program.name)
    return Round(answers.rate(), processor / args.records * 1e6)


def peer_round(
    kafka: Kafka, folder: Path, peer: Callable[[int], list[str]], output: str, expected: list[object], args: argparse.Namespace
) -> Round:
    """MLServer reads only what is written after it has started, and does not say when it listens: it is asked first."""
    read_from = kafka.topic("peer-input")
    program = Program("peer", peer, environment=kafka_variables(kafka, "none", read_from, output))
    with running(program, folder) as server:
        try:
            producer, failed, consumer = kafka.producer(), list[str](), kafka.consumer()
            probes = probe(kafka, producer, consumer, read_from, output)
            before = processor_seconds_of_tree(server.process.pid)
            for number in range(args.peer_records):
                send(producer, read_from, number, failed)
            flush(producer, failed)
            changed, found = time.monotonic(), 0
            while found < args.peer_records:
                if (now := kafka.written(consumer, output) - probes) != found:
                    changed, found = time.monotonic(), now
                if time.monotonic() - changed > args.limit:
                    raise Failed(f"no answer for {args.limit:g} s after {found} of {args.peer_records}")
                time.sleep(0.2)
            processor = processor_seconds_of_tree(server.process.pid) - before
            answers = read(kafka, output, expected, args.peer_records)
            consumer.close()
        except Failed as error:
            raise Failed(f"peer: {error}\n{server.tail()}") from None
    answers.check("peer")
    return Round(answers.rate(), processor / args.peer_records * 1e6)


def probe(kafka: Kafka, producer: Producer, consumer: Consumer, read_from: str, output: str) -> int:
    """Sends a record to each partition until all of them are answered; returns how many answers there are."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        before = kafka.written(consumer, output)
        for number in range(kafka.partitions):
            headers = [("mlserver-model", MODEL_NAME.encode())]
            producer.produce(read_from, BODIES[0], PROBE, partition=number, headers=headers)
        producer.flush(60)
        time.sleep(2)
        after = kafka.written(consumer, output)
        if after - before == kafka.partitions:
            return after
    raise Failed("it answers no records")


def processor_seconds_of_tree(pid: int) -> float:
    """The processor time of a process and its children."""
    from run import tree

    return sum(processor_seconds(one) for one in tree(pid))


def write_peer(folder: Path, args: argparse.Namespace) -> Callable[[int], list[str]] | None:
    """Writes the model of MLServer; returns how it is started, or `None` if there is none."""
    if args.peer is None and args.env is None:
        print("MLServer 1.7.1 is skipped: pass --env or --peer", file=sys.stderr)
        return None
    binary = args.peer.resolve() if args.peer else install_peer(args.env.resolve())
    home = folder / "peer-models" / MODEL_NAME
    home.mkdir(parents=True)
    (home / "bench_models.py").write_text(PEER_MODEL)
    (home / "model-settings.json").write_text(json.dumps({"name": MODEL_NAME, "implementation": "bench_models.Echo"}))
    return lambda _port: [str(binary), "start", str(home.parent)]


# --- backlog ---------------------------------------------------------------------------------------------------------


def backlog(kafka: Kafka, folder: Path, args: argparse.Namespace) -> bool:
    """The memory of our server while it works through many records that wait."""
    filled, output = kafka.topic("input"), kafka.topic("output")
    fill(kafka, filled, args.records)
    expected = expected_answers(ours_program(args.ours, {"MLSERVER_DEBUG": "false"}), folder)
    variables = kafka_variables(kafka, "backlog", filled, output, delivery=args.delivery)
    seen: list[int] = []
    with running(ours_program(args.ours, variables), folder) as server:
        try:
            look = lambda: seen.append(resident(server.process.pid))  # noqa: E731
            wait_for_commits(kafka, "backlog", filled, args.records, server.process, args.limit, look)
        except Failed as error:
            raise Failed(f"{error}\n{server.tail()}") from None
    answers = read(kafka, output, expected, args.records, ISOLATION[args.delivery])
    answers.check("ours")
    reached = max(seen) < BACKLOG_TARGET
    print(f"\n### A backlog of {args.records} records, {kafka.partitions} partitions, {args.delivery}\n")
    print("| work | measured | target |\n|---|---:|---:|")
    print(f"| resident memory, maximum | {max(seen) / MIB:.1f} MiB | {BACKLOG_TARGET / MIB:.0f} MiB{'' if reached else ', **missed**'} |")
    print(f"| resident memory, median | {statistics.median(seen) / MIB:.1f} MiB | |")
    print(f"| records per second | {answers.rate():.0f} | |")
    return reached


# --- kill ------------------------------------------------------------------------------------------------------------


def kill(kafka: Kafka, folder: Path, args: argparse.Namespace) -> bool:
    """Lost and repeated answers of a server that is killed while another one joins and leaves its group."""
    expected = expected_answers(ours_program(args.ours, {"MLSERVER_DEBUG": "false"}), folder)
    print(f"\n### {args.records} records while the server is killed {args.kills} times\n")
    print("| delivery | lost | repeated | dead letters | wrong | another server joined or left |\n|---|---:|---:|---:|---:|---:|")
    good = True
    for delivery in ("at_least_once", "exactly_once"):
        good &= kill_once(kafka, folder, delivery, expected, args)
    return good


def kill_once(kafka: Kafka, folder: Path, delivery: str, expected: list[object], args: argparse.Namespace) -> bool:
    read_from, output, dead = kafka.topic("input"), kafka.topic("output"), kafka.topic("dead")
    variables = kafka_variables(
        kafka,
        f"kill-{delivery}",
        read_from,
        output,
        delivery=delivery,
        topic_dead_letters=dead,
        # A killed member is missed sooner than by default.
        config=json.dumps({"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}),
        readiness="false",
    )
    first, second = (ours_program(args.ours, variables, f"{name}-{delivery}") for name in ("first", "second"))
    done, problems, changes = threading.Event(), list[str](), 0

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001, the run fails with it
                problems.append(f"{work.__name__}: {error!r}")
                done.set()

        return run

    def write() -> None:
        """Requests all the while, so that each kill meets some."""
        producer, failed = kafka.producer(), list[str]()
        began = time.monotonic()
        for number in range(args.records):
            send(producer, read_from, number, failed)
            if number % 50 == 0:
                producer.poll(0)
                ahead = number / args.records * args.seconds - (time.monotonic() - began)
                if ahead > 0:
                    time.sleep(ahead)
        flush(producer, failed)

    def join_and_leave() -> None:
        """Changes the members of the group once a second."""
        nonlocal changes
        while not done.is_set():
            server = start(second, folder)
            changes += 1
            done.wait(1)
            # Leaves the group and answers what it has.
            stop(server)
            changes += 1
            done.wait(1)

    threads = [threading.Thread(target=guarded(write)), threading.Thread(target=guarded(join_and_leave))]
    server = start(first, folder)
    answers = Answers(args.records)
    try:
        for thread in threads:
            thread.start()
        for _ in range(args.kills):
            if done.wait(args.seconds / (args.kills + 1)):
                break
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            server = start(first, folder)
        threads[0].join()
        done.set()
        threads[1].join()
        isolation = ISOLATION[delivery]
        # Offsets of killed transactions hold others up until they are given up.
        deadline = time.monotonic() + args.limit
        missing = args.records
        while not problems:
            answers = read(kafka, output, expected, args.records, isolation)
            if answers.lost() < missing:
                missing, deadline = answers.lost(), time.monotonic() + args.limit
            if missing == 0 or time.monotonic() > deadline:
                break
            time.sleep(1)
    finally:
        done.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        # Whatever it was about to write is counted, too.
        stop(server)
    if problems:
        raise Failed(f"{delivery}: {problems[0]}\n{server.tail()}")
    answers = read(kafka, output, expected, args.records, isolation)
    consumer = kafka.consumer()
    try:
        letters = kafka.written(consumer, dead)
    finally:
        consumer.close()
    lost, repeated = answers.lost(), answers.repeated()
    print(f"| {delivery} | {lost} | {repeated} | {letters} | {len(answers.wrong)} | {changes} times |", flush=True)
    for problem in answers.wrong[:3]:
        print(f"{delivery}: {problem}", file=sys.stderr)
    return not (lost or letters or answers.wrong or (delivery == "exactly_once" and repeated))


PARTS = {"rate": rate, "backlog": backlog, "kill": kill}
RECORDS = {"rate": 500_000, "backlog": 1_000_000, "kill": 100_000}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the Kafka server with others, in one run.")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--ours", type=Path, required=True, help="our binary, built with `--profile dist` with the feature `kafka`")
    parser.add_argument("--loop", type=Path, help="the example `kafka_loop`, for `rate`")
    parser.add_argument("--env", type=Path, help="folder for the peer's virtual environment, for `rate`")
    parser.add_argument("--peer", type=Path, help="MLServer's `mlserver`, instead of one in --env")
    parser.add_argument("--servers", help="a broker that runs, instead of one that is started")
    parser.add_argument("--records", type=int, help="requests; by default 500,000, 1,000,000 and 100,000")
    parser.add_argument("--peer-records", type=int, default=5000, help="requests for MLServer")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120, help="how long `kill` writes requests")
    parser.add_argument("--limit", type=float, default=60, help="seconds without an answer that end the run")
    parser.add_argument("--delivery", choices=["at_least_once", "exactly_once"], default="at_least_once")
    args = parser.parse_args()
    args.records = args.records or RECORDS[args.part]
    try:
        if args.part == "rate" and args.loop is None:
            raise Failed("--loop: the example `kafka_loop`, as the first lines of this file build it")
        with tempfile.TemporaryDirectory(prefix="mlserver-bench-") as name, ExitStack() as stack:
            folder = Path(name)
            # Copied, because the build folder may change during the run.
            args.ours = Path(shutil.copy2(args.ours.resolve(), folder / "ours-binary"))
            if args.loop is not None:
                args.loop = Path(shutil.copy2(args.loop.resolve(), folder / "loop-binary"))
            servers = args.servers or stack.enter_context(broker(folder))
            print(machine(), flush=True)
            good = PARTS[args.part](Kafka(servers, args.partitions), folder, args)
        sys.exit(0 if good else 1)
    except Failed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
