//! Servers, runs of `mlserver infer` and brokers that are killed in the middle of the work: every record is answered, none wrongly,
//! and only those whose offsets were not committed are answered again.

use std::collections::{BTreeMap, BTreeSet};
#[cfg(feature = "parquet")]
use std::fs;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use rdkafka::admin::{NewTopic, TopicReplication};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::infer::{committed_sum, counts, end_sum, infer, produce_numbers, request, url};
use super::transport::number;
#[cfg(feature = "parquet")]
use crate::cli::infer::parquet_rows;
use crate::cli::infer::{InferCommand, lines};
use crate::models::graphs_remote::graph;
use crate::support::kafka::{Broker, KafkaRecord, kafka_wait_until};
use crate::support::scripted::{Received, Reply, ScriptedServer};
use crate::support::{Folder, ServerBuilder, TestServer, pause};

/// Values that cannot be answered, by what is wrong with them.
const POISON: [&str; 4] = ["text", "empty", "null", "shape"];

/// Returns a record that cannot be answered, whose key begins with what is wrong with it.
fn poison(what: &str, index: i64) -> KafkaRecord {
    let mut shape = request(index);
    shape["inputs"][0]["shape"] = json!([1, 3]);
    let record = match what {
        "text" => KafkaRecord::new("not JSON"),
        "empty" => KafkaRecord::new(""),
        "null" => KafkaRecord::default(),
        _ => KafkaRecord::json(&shape),
    };
    record.key(format!("{what}-{index}")).with_header("mlserver-model", "m")
}

/// Returns requests with these numbers, in turn for three partitions. In place of each twentieth is a record that cannot be answered.
fn with_poison(numbers: std::ops::Range<i64>) -> Vec<KafkaRecord> {
    let record = |index: i64| {
        let what = usize::try_from(index / 20).unwrap() % POISON.len();
        let record = if index % 20 == 7 { poison(POISON[what], index) } else { number(index).key(format!("k{index}")) };
        record.partition(i32::try_from(index % 3).unwrap())
    };
    numbers.map(record).collect()
}

/// Returns the keys of records: of those that can be answered, and of the others.
fn keys(records: &[KafkaRecord]) -> (BTreeSet<String>, BTreeSet<String>) {
    records.iter().map(|record| record.key_text().unwrap().to_owned()).partition(|key| key.starts_with('k'))
}

/// Returns how often each record was answered, by its key. The answer to `k7` has to be 7.
#[track_caller]
fn times_answered(answers: &[KafkaRecord]) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for answer in answers {
        let key = answer.key_text().unwrap();
        assert_eq!(answer.value_json()["outputs"][0]["data"], json!([key_number(key)]), "{key}");
        *times.entry(key.to_owned()).or_default() += 1;
    }
    times
}

fn key_number(key: &str) -> i64 {
    key.trim_start_matches(|character: char| !character.is_ascii_digit()).parse().unwrap()
}

/// A group with one server, which returns at once after it was killed: to the brokers, it is still the same member.
struct Group {
    name: String,
    input: String,
    output: String,
    dead_letters: String,
    settings: Value,
    server: Option<TestServer>,
}

impl Group {
    fn new(broker: &Broker, input: &str, delivery: &str) -> Self {
        let [name, output, dead_letters] =
            ["group", "output", "dead-letters"].map(|name| format!("{input}-{delivery}-{name}"));
        broker.create_topic(&output, 2, 1);
        broker.create_topic(&dead_letters, 1, 1);
        let settings = json!({
            "kafka_enabled": true,
            "kafka_servers": broker.address(),
            "kafka_topic_input": input,
            "kafka_topic_output": output,
            "kafka_topic_dead_letters": dead_letters,
            "kafka_group_id": name,
            "kafka_delivery": delivery,
            "kafka_transactional_id": name,
            "kafka_max_in_flight": MAX_IN_FLIGHT,
            "kafka_config": {"group.instance.id": name},
            "max_request_bytes_in_flight": MAX_REQUEST_BYTES,
        });
        Self { name, input: input.to_owned(), output, dead_letters, settings, server: None }
    }

    fn start(&mut self, folder: Folder) {
        self.server = Some(ServerBuilder::new(folder.settings(&self.settings)).start());
    }

    fn kill(&mut self) {
        let server = self.server.take().unwrap();
        server.signal(Signal::KILL);
        server.ended();
    }

    /// Checks that each record has been answered, or is a dead letter. Returns how often each has been answered, and how many
    /// answers and dead letters there are besides one for each record.
    #[track_caller]
    fn check(&self, broker: &Broker, records: &[KafkaRecord]) -> (BTreeMap<String, usize>, usize) {
        broker.wait_until_committed(&self.name, &self.input);
        let (good, bad) = keys(records);
        let answers = broker.consume_at_least(&self.output, good.len(), "read_committed");
        let times = times_answered(&answers);
        assert!(times.keys().eq(&good), "{}: {times:?}", self.name);
        let dead = broker.consume_at_least(&self.dead_letters, bad.len(), "read_committed");
        for letter in &dead {
            let key = letter.key_text().unwrap();
            let status = match key.split_once('-').unwrap().0 {
                "shape" => "400",
                "large" => "413",
                _ => "422",
            };
            assert_eq!(letter.header("mlserver-error-status"), Some(status), "{key}");
        }
        assert_eq!(keys(&dead), (BTreeSet::new(), bad), "{}", self.name);
        (times, answers.len() + dead.len() - records.len())
    }
}

const MAX_IN_FLIGHT: usize = 200;
const MAX_REQUEST_BYTES: usize = 400_000;

#[test]
fn kafka_two_groups_answer_every_record_when_their_servers_are_killed() {
    let Some(broker) = Broker::shared() else { return };
    let input = broker.topic("input", 3);
    let mut groups = ["at_least_once", "exactly_once"].map(|delivery| Group::new(broker, &input, delivery));
    let identity = || Folder::new().with_identity("m");
    let mut records = Vec::new();
    let (kills, of_round) = (3, 1000);
    for round in 0..kills {
        let numbers = round * of_round..(round + 1) * of_round;
        let mut produced = with_poison(numbers.clone());
        // Too large for the server.
        let large =
            json!({"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["x".repeat(500_000)]}]});
        let large = KafkaRecord::json(&large).with_header("mlserver-model", "m");
        produced.insert(produced.len() / 2, large.key(format!("large-{round}")));
        broker.produce(&input, &produced);
        records.extend(produced);
        for group in &mut groups {
            group.start(identity());
        }
        for group in &mut groups {
            let wanted = numbers.start + fastrand::i64(of_round / 10..of_round * 8 / 10);
            kafka_wait_until("some are answered", || end_sum(broker, &group.output) > wanted);
            group.kill();
        }
    }
    for group in &mut groups {
        group.start(identity());
    }
    for (group, limit) in groups.iter().zip([MAX_IN_FLIGHT * 3, 0]) {
        let (_, repeated) = group.check(broker, &records);
        // Each kill repeats at most the records in flight.
        assert!(repeated <= limit, "{}: {repeated} more", group.name);
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn infer_two_groups_of_a_topic_answer_every_record_when_they_are_killed() {
    let Some(broker) = Broker::shared() else { return };
    let servers = [(); 2].map(|()| {
        let limit = Arc::new(AtomicUsize::new(0));
        let current = Arc::clone(&limit);
        (keeping(move |request| request.number < current.load(Ordering::Acquire)), limit)
    });
    let (input, output) = (Broker::unique("in"), broker.topic("out", 2));
    let large = (32 << 20) + 1;
    broker.create(&NewTopic::new(&input, 3, TopicReplication::Fixed(1)).set("max.message.bytes", "40000000"));
    let mut records = with_poison(0..1500);
    // Longer than a line may be.
    records.insert(700, KafkaRecord::new("x".repeat(large)).key("large-1500").partition(1));
    broker.produce(&input, &records);
    let (good, bad) = keys(&records);

    let groups = ["topic", "file"].map(Broker::unique);
    let output_url = url(broker, &output);
    let [to_topic, to_file] = [(&output_url, 0), (&"out.jsonl".to_owned(), 1)].map(|(to, index)| {
        let run = infer(&servers[index].0, &url(broker, &input), to, &groups[index]);
        run.flags(&["-w", "4", "--max-workers", "16"])
    });
    let mut repeatable = BTreeSet::new();
    for _ in 0..3 {
        let (committed, written) = (committed_sum(broker, &groups[0], &input), to_file.partial().lines().count());
        for (server, limit) in &servers {
            limit.store(server.received().len() + 400, Ordering::Release);
        }
        let children = [&to_topic, &to_file].map(InferCommand::spawn);
        kafka_wait_until("nothing is committed", || committed_sum(broker, &groups[0], &input) >= committed + 100);
        kafka_wait_until("nothing is written", || to_file.partial().lines().count() >= written + 100);
        children.into_iter().for_each(kill);
        let committed = broker.committed(&groups[0], &input);
        let is_open = |partition: &i64, offset: i64| {
            committed[usize::try_from(*partition).unwrap()].is_none_or(|committed| offset >= committed)
        };
        let ends = broker.end_offsets(&input);
        for (partition, end) in (0..).zip(ends) {
            repeatable.extend((0..end).filter(|offset| is_open(&partition, *offset)).map(|offset| (partition, offset)));
        }
    }
    for (_, limit) in &servers {
        limit.store(usize::MAX, Ordering::Release);
    }
    let (rows, failed) = (i64::try_from(records.len()).unwrap(), i64::try_from(bad.len()).unwrap());
    let children = [to_topic.spawn(), to_file.spawn()];
    let [of_topic, of_file] = children;
    let ran = to_topic.ended(of_topic);
    assert!(matches!(ran.code, Some(0 | 4)), "{}", ran.stderr);
    let ran = to_file.ended(of_file);
    let [found, found_failed, _] = counts(&ran, 4);
    assert_eq!((found, found_failed), (rows, failed));
    for group in &groups {
        assert_eq!(committed_sum(broker, group, &input), rows);
    }

    // The file has each record once.
    let answers = lines(&ran.output);
    assert_eq!(answers.len(), records.len());
    let found: BTreeSet<String> = answers.iter().map(check_answer).collect();
    assert_eq!(found, &good | &bad);
    // The topic has each record once, or more often if it was not committed when the run was killed.
    let answers = broker.consume_at_least(&output, records.len(), "read_committed");
    let mut times: BTreeMap<(i64, i64), usize> = BTreeMap::new();
    let found: BTreeSet<String> = answers.iter().map(|answer| check_answer(&answer.value_json())).collect();
    assert_eq!(found, &good | &bad);
    for answer in &answers {
        let parameters = &answer.value_json()["parameters"];
        let place = ["kafka_partition", "kafka_offset"].map(|name| parameters[name].as_i64().unwrap());
        *times.entry((place[0], place[1])).or_default() += 1;
    }
    assert_eq!(times.len(), records.len());
    let repeated = |place: &(i64, i64), times: usize| times > 1 && !repeatable.contains(place);
    let wrong: Vec<_> = times.iter().filter(|(place, times)| repeated(place, **times)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Checks that the answer to `k7` is 7, and that to a record that cannot be answered an error. Returns its id.
#[track_caller]
fn check_answer(answer: &Value) -> String {
    let id = answer["id"].as_str().unwrap();
    let said = answer["error"]["msg"].as_str().unwrap_or_default();
    let expected = match id.split('-').next().unwrap() {
        "text" => "invalid JSON",
        "empty" | "null" => "the record is empty",
        "shape" => "shape",
        "large" => "over the limit of 33554432",
        _ => {
            assert_eq!(answer["outputs"][0]["data"], json!([key_number(id)]), "{answer}");
            ""
        }
    };
    assert!(said.contains(expected), "{answer}");
    id.to_owned()
}

/// A model that returns its numbers, and keeps requests waiting until they are `due`: a run does not end before it is killed.
fn keeping(due: impl Fn(&Received) -> bool + Send + Sync + 'static) -> ScriptedServer {
    ScriptedServer::serve(move |request| {
        kafka_wait_until("the request is not due", || due(request));
        let input = &request.json()["inputs"][0];
        if input["shape"].as_array().unwrap().last() == Some(&json!(3)) {
            return Reply::error(400, "invalid shape");
        }
        request.echo()
    })
}

/// Returns a model that answers requests for numbers below the one that it also returns.
fn keeping_numbers(limit: i64) -> (ScriptedServer, Arc<AtomicI64>) {
    let limit = Arc::new(AtomicI64::new(limit));
    let current = Arc::clone(&limit);
    let server = keeping(move |request| request.numbers()[0] < current.load(Ordering::Acquire));
    (server, limit)
}

#[test]
fn infer_commits_answers_while_later_requests_of_the_topic_wait() {
    let Some(broker) = Broker::shared() else { return };
    let (input, output, group) = (broker.topic("in", 1), broker.topic("out", 1), Broker::unique("infer"));
    let (server, limit) = keeping_numbers(0);
    produce_numbers(broker, &input, 1, 0, 100);
    let run = infer(&server, &url(broker, &input), &url(broker, &output), &group).flags(&["-w", "100"]);
    let child = run.spawn();
    kafka_wait_until("not all are asked for", || server.received().len() == 100);
    // Nothing is read any more.
    for next in [20, 40, 60] {
        limit.store(next, Ordering::Release);
        kafka_wait_until("the answers are not committed", || committed_sum(broker, &group, &input) == next);
    }
    kill(child);
    limit.store(100, Ordering::Release);
    assert_eq!(counts(&run.run(), 0), [40, 0, 0]);
    assert_eq!(broker.consume(&output, 100).len(), 100, "no record is answered twice");
}

/// Answers of a run whose input's broker is killed after the answers have been written and before they are committed.
#[track_caller]
fn infer_without_the_broker_of_the_input(is_run_killed: bool) {
    let starting = std::thread::spawn(Broker::shared);
    let (Some(mut source), Some(sink)) = (Broker::own(), starting.join().unwrap()) else { return };
    let (input, output, group) = (source.topic("in", 1), sink.topic("out", 2), Broker::unique("infer"));
    let (server, limit) = keeping_numbers(60);
    produce_numbers(&source, &input, 1, 0, 100);
    let run = infer(&server, &url(&source, &input), &url(sink, &output), &group).flags(&["-w", "100"]);
    let child = run.spawn();
    kafka_wait_until("60 records are not committed", || committed_sum(&source, &group, &input) == 60);
    kafka_wait_until("the others are not asked for", || server.received().len() == 100);
    source.kill();
    limit.store(100, Ordering::Release);
    kafka_wait_until("the answers are not written", || end_sum(sink, &output) == 100);
    let repeated = if is_run_killed {
        kill(child);
        source.start_again();
        assert_eq!(committed_sum(&source, &group, &input), 60);
        assert_eq!(counts(&run.run(), 0), [40, 0, 0]);
        2
    } else {
        source.start_again();
        assert_eq!(counts(&run.ended(child), 0), [100, 0, 0]);
        1
    };
    assert_eq!(committed_sum(&source, &group, &input), 100);
    let times = times_answered(&sink.consume_at_least(&output, 60 + 40 * repeated, "read_committed"));
    let expected = (0..100).map(|number| (format!("key-{number}"), if number < 60 { 1 } else { repeated })).collect();
    assert_eq!(times, expected);
    assert_eq!(counts(&run.run(), 0), [0, 0, 0], "nothing is left");
}

#[test]
fn infer_waits_for_a_broker_that_is_killed_before_the_commit() {
    infer_without_the_broker_of_the_input(false);
}

#[test]
fn infer_repeats_only_what_was_not_committed_when_it_is_killed_with_the_broker() {
    infer_without_the_broker_of_the_input(true);
}

/// A server whose broker is killed after answers have been written and before they are committed: the record before them has none.
#[track_caller]
fn server_without_its_broker(is_server_killed: bool) {
    let Some(mut broker) = Broker::own() else { return };
    let gate = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&gate);
    let remote = keeping(move |request| request.numbers() != [100] || is_open.load(Ordering::Acquire));
    let url = format!("http://{}", remote.address);
    let folder = || graph(Folder::new(), "m", &[("echo", &url)]);
    let input = broker.topic("input", 1);
    let mut group = Group::new(&broker, &input, "at_least_once");
    let records: Vec<_> = (0..300).map(|index| number(index).key(format!("k{index}"))).collect();
    broker.produce(&input, &records[..100]);
    group.start(folder());
    broker.wait_until_committed(&group.name, &input);
    broker.produce(&input, &records[100..200]);
    kafka_wait_until("the answers are not written", || end_sum(&broker, &group.output) == 199);
    assert_eq!(committed_sum(&broker, &group.name, &input), 100);
    broker.kill();
    if is_server_killed {
        group.kill();
    }
    broker.start_again();
    gate.store(true, Ordering::Release);
    if is_server_killed {
        group.start(folder());
    }
    broker.produce(&input, &records[200..]);
    let (times, _) = group.check(&broker, &records);
    for (key, times) in times {
        let allowed = match (key_number(&key), is_server_killed) {
            (101..200, true) => 2..=2,
            // If the group was formed again meanwhile.
            (100..200, false) => 1..=2,
            _ => 1..=1,
        };
        assert!(allowed.contains(&times), "{key} was answered {times} times");
    }
}

#[test]
fn kafka_server_loses_nothing_when_the_broker_is_killed_before_the_commit() {
    server_without_its_broker(false);
}

#[test]
fn kafka_server_repeats_only_what_was_not_committed_when_it_is_killed_with_the_broker() {
    server_without_its_broker(true);
}

#[test]
fn kafka_exactly_once_shows_each_answer_once_when_the_broker_is_killed() {
    let Some(mut broker) = Broker::own() else { return };
    let input = broker.topic("input", 3);
    let mut group = Group::new(&broker, &input, "exactly_once");
    group.start(Folder::new().with_identity("m"));
    let records = with_poison(0..2000);
    broker.produce(&input, &records[..1500]);
    let wanted = fastrand::i64(100..1200);
    kafka_wait_until("some are answered", || end_sum(&broker, &group.output) > wanted);
    broker.kill();
    broker.start_again();
    broker.produce(&input, &records[1500..]);
    let (_, repeated) = group.check(&broker, &records);
    assert_eq!(repeated, 0);
}

#[test]
fn kafka_partitions_that_were_paused_are_read_when_they_are_assigned_again() {
    let Some(broker) = Broker::shared() else { return };
    let gate = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&gate);
    let remote = keeping(move |_| is_open.load(Ordering::Acquire));
    let url = format!("http://{}", remote.address);
    let input = broker.topic("input", 1);
    let mut group = Group::new(broker, &input, "at_least_once");
    group.settings["kafka_max_in_flight"] = json!(10);
    group.settings["kafka_config"] = json!({"session.timeout.ms": 6000});
    let records: Vec<_> = (0..50).map(|index| number(index).key(format!("k{index}"))).collect();
    broker.produce(&input, &records);
    group.start(graph(Folder::new(), "m", &[("echo", &url)]));
    kafka_wait_until("there is room", || remote.received().len() >= 10);
    // The reader pauses after a second without room.
    pause(Duration::from_secs(2));
    let server = group.server.as_ref().unwrap();
    // The brokers give its partition up.
    server.signal(Signal::STOP);
    pause(Duration::from_secs(9));
    server.signal(Signal::CONT);
    server.wait_for_log("Kafka has given 1 partitions to other consumers.");
    gate.store(true, Ordering::Release);
    group.check(broker, &records);
}

#[cfg(feature = "parquet")]
#[test]
fn infer_topic_to_parquet_has_each_record_once_after_kills() {
    let Some(broker) = Broker::shared() else { return };
    let server = ScriptedServer::serve(Received::echo);
    let (input, group) = (broker.topic("in", 1), Broker::unique("infer"));
    produce_numbers(broker, &input, 1, 0, 10_000);
    let run = infer(&server, &url(broker, &input), "out.parquet", &group).flags(&["-s", "50", "-w", "2"]);
    let [partial, columns, complete, rows] =
        ["out.parquet.partial", "out.parquet.columns", "out.parquet", "out.parquet.partial.rows"]
            .map(|name| run.path(name));
    let written = || fs::metadata(&partial).map_or(0, |metadata| metadata.len());
    for _ in 0..2 {
        let before = written();
        let child = run.spawn();
        kafka_wait_until("nothing is written", || written() > before + 100_000);
        kill(child);
        assert!(!columns.exists());
    }
    for _ in 0..2 {
        let child = run.spawn();
        kafka_wait_until("there are no columns", || columns.exists());
        kill(child);
        // The records are not read again: their answers are.
        assert_eq!(committed_sum(broker, &group, &input), 10_000);
        assert!(partial.exists() && !complete.exists());
    }
    assert_eq!(counts(&run.run(), 0), [10_000, 0, 10_000]);
    assert!(![partial, columns, rows].iter().any(|path| path.exists()));
    let expected: Vec<String> = (0..10_000)
        .map(|index| format!("{{batch_index: {index}, id: \"key-{index}\", y: {index}, error: null}}"))
        .collect();
    assert!(parquet_rows(&complete) == expected);
}
