//! `mlserver infer` with topics as input and output.

use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cli::infer::{InferCommand, InferExit, lines, numbers, values};
use crate::support::kafka::{Broker, KAFKA_PATIENCE, KAFKA_USER, KafkaListener, KafkaRecord, kafka_wait_until};
use crate::support::pause;
use crate::support::scripted::{Received, Reply, ScriptedServer};

/// A request with one number and without an id.
pub(super) fn request(value: i64) -> Value {
    json!({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "INT64", "data": [value]}]})
}

pub(super) fn url(broker: &Broker, topic: &str) -> String {
    format!("kafka://{}/{topic}", broker.address())
}

/// A run that reads and writes at these addresses.
pub(super) fn infer(server: &ScriptedServer, input: &str, output: &str, group: &str) -> InferCommand {
    let server = server.address.to_string();
    let flags = ["-u", &server, "-m", "m", "-i", input, "-o", output, "--kafka-group", group, "--summary", "json"];
    InferCommand::new(numbers(50)).flags(&flags)
}

/// Returns the numbers in the summary: rows, failed rows and rows of earlier runs.
#[track_caller]
pub(super) fn counts(ran: &InferExit, code: i32) -> [i64; 3] {
    assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    ["rows", "failed", "resumed"].map(|count| summary[count].as_i64().unwrap())
}

/// Produces requests with the numbers from `first` on, in turn to each partition.
pub(super) fn produce_numbers(broker: &Broker, topic: &str, partitions: i32, first: i64, count: i64) {
    let record = |value: i64| {
        let partition = i32::try_from(value % i64::from(partitions)).unwrap();
        KafkaRecord::json(&request(value)).partition(partition).key(format!("key-{value}"))
    };
    broker.produce(topic, &(first..first + count).map(record).collect::<Vec<_>>());
}

fn all(count: i64) -> Vec<i64> {
    (0..count).collect()
}

/// Returns the sorted numbers of answers, of which each must have one.
fn sorted_numbers(answers: impl IntoIterator<Item = Value>) -> Vec<i64> {
    let answers: Vec<Value> = answers.into_iter().collect();
    let mut numbers: Vec<i64> = values(&answers).into_iter().map(Option::unwrap).collect();
    numbers.sort_unstable();
    numbers
}

/// A server that takes some milliseconds for each answer.
fn slow() -> ScriptedServer {
    ScriptedServer::serve(|request| {
        pause(Duration::from_millis(10));
        request.echo()
    })
}

pub(super) fn committed_sum(broker: &Broker, group: &str, topic: &str) -> i64 {
    broker.committed(group, topic).into_iter().flatten().sum()
}

pub(super) fn end_sum(broker: &Broker, topic: &str) -> i64 {
    broker.end_offsets(topic).into_iter().sum()
}

#[test]
fn infer_topic_to_topic_keeps_keys_ids_and_order() {
    let Some(broker) = Broker::shared() else { return };
    let server = ScriptedServer::serve(|request| {
        if request.numbers().contains(&7) { Reply::error(400, "not seven") } else { request.echo() }
    });
    let (input, output, group) = (broker.topic("in", 3), broker.topic("out", 3), Broker::unique("infer"));
    let record = |value: i64| {
        let partition = i32::try_from(value % 3).unwrap();
        let record = KafkaRecord::json(&request(value)).partition(partition);
        // Those of partition 2 have no keys.
        let record = if partition == 2 { record } else { record.key(format!("key-{value}")) };
        if value % 2 == 0 { record.with_header("mlserver-request-id", format!("id-{value}")) } else { record }
    };
    let mut records: Vec<KafkaRecord> = (0..90).map(record).collect();
    records[10].value = Some(b"{\"id\": \"broken".to_vec());
    records[20].value = None;
    broker.produce(&input, &records);

    let run = infer(&server, &url(broker, &input), &url(broker, &output), &group).flags(&["-s", "4"]);
    let ran = run.run();
    assert_eq!(counts(&ran, 4), [90, 3, 0]);
    let answers = broker.consume(&output, 90);
    let mut seen = BTreeMap::new();
    for answer in &answers {
        let value = answer.value_json();
        let parameters = &value["parameters"];
        assert_eq!(parameters["kafka_topic"], input.as_str());
        let (partition, offset) =
            (parameters["kafka_partition"].as_i64().unwrap(), parameters["kafka_offset"].as_i64().unwrap());
        let number = offset * 3 + partition;
        let place = (answer.partition, partition);
        assert!(seen.insert(place, offset).is_none_or(|before| before < offset), "{place:?}: {offset}");
        let asked = &records[usize::try_from(number).unwrap()];
        assert_eq!(answer.key, asked.key);
        if partition == 2 {
            assert_eq!(answer.partition, Some(2), "records without a key keep their order");
        }
        let id = asked.header("mlserver-request-id").or_else(|| asked.key_text());
        if let Some(id) = id {
            assert_eq!((answer.header("mlserver-request-id"), &value["id"]), (Some(id), &json!(id)));
        }
        let expected = match number {
            10 | 20 => json!("preprocessing error"),
            7 => json!("inference error"),
            _ => {
                assert_eq!(value["outputs"][0]["data"][0], number);
                Value::Null
            }
        };
        assert_eq!(value["error"]["status"], expected, "{value}");
        if number == 20 {
            assert_eq!(value["error"]["msg"], "the record is empty");
        }
    }
    assert_eq!(seen.keys().filter(|(_, partition)| *partition == 2).count(), 1);
    broker.wait_until_committed(&group, &input);

    // The next run starts where this one ended.
    assert_eq!(counts(&run.run(), 0), [0, 0, 0]);
    produce_numbers(broker, &input, 3, 100, 5);
    assert_eq!(counts(&run.run(), 0), [5, 0, 0]);
    assert_eq!(broker.consume(&output, 95).len(), 95);
    // Another group has read nothing yet.
    let other = Broker::unique("other");
    let ran = infer(&server, &url(broker, &input), "out.jsonl", &other).run();
    assert_eq!(counts(&ran, 4), [95, 3, 0]);
}

#[test]
fn infer_file_to_topic_uses_ids_as_keys() {
    let Some(broker) = Broker::shared() else { return };
    let server = ScriptedServer::serve(Received::echo);
    // The broker creates the topic.
    let output = Broker::unique("created");
    let run = infer(&server, "in.jsonl", &url(broker, &output), "unused");
    assert_eq!(counts(&run.run(), 0), [50, 0, 0]);
    let answers = broker.consume(&output, 50);
    for (row, answer) in answers.iter().enumerate() {
        let (id, value) = (format!("id-{row}"), answer.value_json());
        assert_eq!((answer.key_text(), answer.header("mlserver-request-id")), (Some(&*id), Some(&*id)));
        assert_eq!((&value["parameters"]["batch_index"], &value["id"]), (&json!(row), &json!(id)));
    }
}

#[test]
fn infer_topic_to_file_after_kill_repeats_and_loses_nothing() {
    let Some(broker) = Broker::shared() else { return };
    let (server, input, group) = (slow(), broker.topic("in", 2), Broker::unique("infer"));
    produce_numbers(broker, &input, 2, 0, 400);
    let run = infer(&server, &url(broker, &input), "out.jsonl", &group).flags(&["-w", "4"]);
    let mut child = run.spawn();
    kafka_wait_until("no answers", || run.partial().lines().count() >= 20);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = lines(&run.partial()).len();
    assert!((20..400).contains(&before));
    // A state that a power failure may leave.
    fs::write(run.path("out.jsonl.partial"), run.partial() + "{\"model_name\":\"m\",\"id").unwrap();

    let asked = server.received().len();
    let ran = run.run();
    assert_eq!(counts(&ran, 0), [400, 0, i64::try_from(before).unwrap()]);
    assert_eq!(server.received().len() - asked, 400 - before, "nothing is asked for twice");
    assert_eq!(sorted_numbers(ran.lines(0)), all(400));
    assert_eq!(committed_sum(broker, &group, &input), 400);

    // A complete output is neither replaced nor extended by accident.
    produce_numbers(broker, &input, 2, 400, 4);
    let again = run.run();
    assert_eq!((again.code, &again.output), (Some(1), &ran.output));
    assert!(again.stderr.contains("`out.jsonl` is the complete output of an earlier run"), "{}", again.stderr);
    let run = run.flags(&["--resume"]);
    let ran = run.run();
    assert_eq!(counts(&ran, 0), [404, 0, 400]);
    assert_eq!(sorted_numbers(ran.lines(0)), all(404));
    let ran = run.run();
    assert!(ran.stderr.contains("nothing to do: all 404 rows have been answered already"), "{}", ran.stderr);
    // The file is the progress of a group that has committed nothing.
    let of_other = |topic: &str| {
        let other = infer(&server, &url(broker, topic), "out.jsonl", &Broker::unique("other")).flags(&["--resume"]);
        fs::copy(run.path("out.jsonl"), other.path("out.jsonl")).unwrap();
        other.run()
    };
    let ran = of_other(&input);
    assert!(ran.stderr.contains("nothing to do: all 404 rows have been answered already"), "{}", ran.stderr);
    let ran = of_other(&broker.topic("other", 1));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("is not the answer to a record of the topic"), "{}", ran.stderr);
}

/// Waits until a run has committed some answers but not all of them.
fn wait_for_commits(broker: &Broker, group: &str, topic: &str) {
    kafka_wait_until("nothing is committed", || committed_sum(broker, group, topic) >= 20);
}

#[test]
fn infer_topic_to_topic_after_kill_loses_nothing() {
    let Some(broker) = Broker::shared() else { return };
    let (server, group) = (slow(), Broker::unique("infer"));
    let (input, output) = (broker.topic("in", 2), broker.topic("out", 1));
    produce_numbers(broker, &input, 2, 0, 2000);
    let run =
        infer(&server, &url(broker, &input), &url(broker, &output), &group).flags(&["-w", "4", "--max-workers", "4"]);
    let mut child = run.spawn();
    wait_for_commits(broker, &group, &input);
    child.kill().unwrap();
    child.wait().unwrap();
    let (committed, answered) = (committed_sum(broker, &group, &input), end_sum(broker, &output));
    assert!((20..2000).contains(&committed) && committed <= answered, "{committed} {answered}");

    assert_eq!(counts(&run.run(), 0), [2000 - committed, 0, 0]);
    let repeated = answered - committed;
    let answers = broker.consume(&output, usize::try_from(2000 + repeated).unwrap());
    let mut found = sorted_numbers(answers.iter().map(KafkaRecord::value_json));
    found.dedup();
    assert_eq!(found, all(2000));
}

fn stopped(run: &InferCommand, child: Child, signal: Signal) -> InferExit {
    kill_process(Pid::from_child(&child), signal).unwrap();
    run.ended(child)
}

#[test]
fn infer_signal_commits_what_was_answered() {
    let Some(broker) = Broker::shared() else { return };
    let (server, group) = (slow(), Broker::unique("infer"));
    let (input, output) = (broker.topic("in", 2), broker.topic("out", 1));
    produce_numbers(broker, &input, 2, 0, 2000);
    let run = infer(&server, &url(broker, &input), &url(broker, &output), &group).flags(&["-w", "4"]);
    let child = run.spawn();
    wait_for_commits(broker, &group, &input);
    let ran = stopped(&run, child, Signal::INT);
    let [rows, ..] = counts(&ran, 130);
    assert_eq!((committed_sum(broker, &group, &input), end_sum(broker, &output)), (rows, rows));
    assert!(ran.stderr.contains("hint: repeat the command to continue"), "{}", ran.stderr);
    assert_eq!(counts(&run.run(), 0), [2000 - rows, 0, 0]);
    let answers = broker.consume(&output, 2000);
    assert_eq!(sorted_numbers(answers.iter().map(KafkaRecord::value_json)), all(2000));
}

#[test]
fn infer_topic_ends_behind_transactions() {
    let Some(broker) = Broker::shared() else { return };
    let (server, input, group) =
        (ScriptedServer::serve(Received::echo), broker.topic("in", 1), Broker::unique("infer"));
    let producer: BaseProducer = broker.client().set("transactional.id", Broker::unique("id")).create().unwrap();
    producer.init_transactions(KAFKA_PATIENCE).unwrap();
    for (value, is_committed) in [(0, true), (1, false), (2, true), (3, false)] {
        producer.begin_transaction().unwrap();
        let request = request(value).to_string();
        producer.send(BaseRecord::<(), str>::to(&input).payload(&request)).map_err(|(error, _)| error).unwrap();
        if is_committed {
            producer.commit_transaction(KAFKA_PATIENCE).unwrap();
        } else {
            producer.flush(KAFKA_PATIENCE).unwrap();
            producer.abort_transaction(KAFKA_PATIENCE).unwrap();
        }
    }
    // The last records of the topic are none of those that consumers see.
    let ran = infer(&server, &url(broker, &input), "out.jsonl", &group).run();
    assert_eq!(counts(&ran, 0), [2, 0, 0]);
    assert_eq!(values(&ran.lines(0)), [Some(0), Some(2)]);
}

#[test]
fn infer_answer_over_the_limit_fails_its_row() {
    let Some(broker) = Broker::shared() else { return };
    let server = ScriptedServer::serve(|request| {
        if request.numbers() != [1] {
            return request.echo();
        }
        let output = json!({"name": "y", "shape": [1, 2000], "datatype": "INT64", "data": vec![1; 2000]});
        Reply::Answer(200, "", json!({"model_name": "m", "outputs": [output]}).to_string())
    });
    let (input, output) = (broker.topic("in", 1), broker.topic("out", 1));
    produce_numbers(broker, &input, 1, 0, 3);
    let run = infer(&server, &url(broker, &input), &url(broker, &output), &Broker::unique("infer"));
    let ran = run.flags(&["--kafka-config", "message.max.bytes=3000"]).run();
    assert_eq!(counts(&ran, 4), [3, 1, 0]);
    let answers: Vec<Value> = broker.consume(&output, 3).iter().map(KafkaRecord::value_json).collect();
    assert_eq!(values(&answers), [Some(0), None, Some(2)]);
    let message = answers[1]["error"]["msg"].as_str().unwrap();
    assert!(message.contains("over the limit of ") && message.contains("message.max.bytes"), "{message}");
}

#[test]
fn infer_survives_a_broker_that_restarts() {
    let Some(mut broker) = Broker::own() else { return };
    let (server, input, output) = (slow(), broker.topic("in", 2), broker.topic("out", 2));
    let group = Broker::unique("infer");
    produce_numbers(&broker, &input, 2, 0, 600);
    let run = infer(&server, &url(&broker, &input), &url(&broker, &output), &group).flags(&["-w", "4"]);
    let child = run.spawn();
    kafka_wait_until("there is no answer", || end_sum(&broker, &output) >= 50);
    broker.stop();
    broker.start_again();
    let ran = run.ended(child);
    assert_eq!(counts(&ran, 0), [600, 0, 0]);
    let answers = broker.consume_at_least(&output, 600, "read_committed");
    let mut numbers = sorted_numbers(answers.iter().map(KafkaRecord::value_json));
    numbers.dedup();
    assert_eq!(numbers, all(600));
    assert_eq!(committed_sum(&broker, &group, &input), 600);
    // The next run has nothing to do.
    assert_eq!(counts(&run.run(), 0), [0, 0, 0]);
}

#[test]
fn infer_topic_that_cannot_be_used_is_an_error() {
    let Some(broker) = Broker::shared() else { return };
    let server = ScriptedServer::serve(Received::echo);
    let (input, group) = (broker.topic("in", 1), Broker::unique("infer"));
    produce_numbers(broker, &input, 1, 0, 3);
    let unknown = Broker::unique("unknown");
    let ran = infer(&server, &url(broker, &unknown), "out.jsonl", &group).run();
    counts(&ran, 1);
    let message =
        format!("the topic `{unknown}` does not exist at `{}`: create it, or check its name", broker.address());
    assert!(ran.stderr.contains(&message), "{}", ran.stderr);

    let run = infer(&server, &url(broker, &input), "out.jsonl", &group);
    let ran = run.flags(&["--kafka-config", "group.id=other"]).run();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let message = "the Kafka property `group.id` cannot be set: use `--kafka-group`";
    assert!(ran.stderr.contains(message), "{}", ran.stderr);

    // A server of the same group.
    let member: BaseConsumer = broker.client().set("group.id", &group).create().unwrap();
    member.subscribe(&[&input]).unwrap();
    kafka_wait_until("the member does not join", || {
        drop(member.poll(Duration::from_millis(50)));
        broker.members(&group) == Some(1)
    });
    let ran = infer(&server, &url(broker, &input), "out.jsonl", &group).run();
    counts(&ran, 1);
    assert!(ran.stderr.contains(&format!("the group `{group}` has active members")), "{}", ran.stderr);
    drop(member);

    let run = infer(&server, "kafka://127.0.0.1:1/in", "out.jsonl", &group).flags(&["--timeout", "1"]);
    let ran = run.run();
    counts(&ran, 1);
    assert!(ran.stderr.contains("no connection to Kafka at `127.0.0.1:1` within 1 s: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("Connection refused"), "{}", ran.stderr);
    assert_eq!(server.received().len(), 0);
}

#[test]
fn infer_kafka_security_is_used_and_hidden() {
    let Some(broker) = Broker::shared() else { return };
    let server = ScriptedServer::serve(Received::echo);
    let (input, group) = (broker.topic("in", 1), Broker::unique("infer"));
    produce_numbers(broker, &input, 1, 0, 3);
    let secured = format!("kafka://{}/{input}", broker.listener(KafkaListener::SaslPlaintext));
    let run = |password: &str, mechanism: &str| {
        let properties = json!({"sasl.username": KAFKA_USER.0, "sasl.password": password}).to_string();
        let flags = ["--kafka-config", "security.protocol=sasl_plaintext", "--kafka-config", mechanism, "-vv"];
        let run = infer(&server, &secured, "out.jsonl", &group).flags(&flags);
        run.env("MLSERVER_INFER_KAFKA_CONFIG", &properties).run()
    };
    for (password, mechanism, reason) in [
        ("hush-hush", "sasl.mechanism=PLAIN", "cannot connect to Kafka at "),
        ("hush-hush", "sasl.mechanism=SCRAM-SHA-256", "cannot connect to Kafka at "),
        ("hush-hush", "sasl.mechanism=other", "invalid Kafka configuration: "),
    ] {
        let ran = run(password, mechanism);
        counts(&ran, 1);
        assert!(ran.stderr.contains(reason), "{mechanism}: {}", ran.stderr);
        assert!(!ran.stderr.contains("hush") && !ran.stdout.contains("hush"), "{mechanism}: {}", ran.stderr);
    }
    let ran = run(KAFKA_USER.1, "sasl.mechanism=SCRAM-SHA-256");
    assert_eq!(counts(&ran, 0), [3, 0, 0]);
    assert!(!ran.stderr.contains(KAFKA_USER.1), "{}", ran.stderr);

    let ran = infer(&server, &secured, "out.jsonl", &group).flags(&["--kafka-config", "group.id=other"]).run();
    counts(&ran, 1);
    assert!(ran.stderr.contains("`group.id` cannot be set"), "{}", ran.stderr);
    let pem = ["--kafka-config", "ssl.key.pem=hush-hush"];
    let ran = infer(&server, &url(broker, &input), "out.jsonl", &group).flags(&pem).run();
    assert!(!ran.stderr.contains("hush"), "{}", ran.stderr);
}
