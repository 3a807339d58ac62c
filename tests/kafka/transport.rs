//! Requests from Kafka: what becomes of records, and what holds if servers and brokers fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use mlserver::types::protobuf::messages::{ModelInferRequest, ModelInferResponse};
use prost::Message;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::grpc::raw_request;
use crate::support::kafka::{Broker, KafkaRecord, kafka_wait_until};
use crate::support::python::with_python;
use crate::support::worker_models;
use crate::support::{Folder, IRIS, ServerBuilder};

/// The topics and settings of one test.
struct Topics<'a> {
    broker: &'a Broker,
    input: String,
    output: String,
    dead_letters: String,
    group: String,
}

impl<'a> Topics<'a> {
    fn new(broker: &'a Broker, partitions: i32) -> Self {
        let input = broker.topic("input", partitions);
        let (output, dead_letters) = (format!("{input}-output"), format!("{input}-dead-letters"));
        broker.create_topic(&output, 2, 1);
        broker.create_topic(&dead_letters, 1, 1);
        Self { broker, group: format!("{input}-group"), input, output, dead_letters }
    }

    /// Returns `settings.json` of a server of these topics.
    fn settings(&self, further: &Value) -> Value {
        let mut settings = json!({
            "kafka_enabled": true,
            "kafka_servers": self.broker.address(),
            "kafka_topic_input": self.input,
            "kafka_topic_output": self.output,
            "kafka_group_id": self.group,
        });
        settings.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        settings
    }

    fn iris(&self, further: &Value) -> ServerBuilder {
        ServerBuilder::new(Folder::iris().settings(&self.settings(further)))
    }

    /// Returns a server of a model in Python, by class, whose name is `m`. `None` without an interpreter.
    fn python(&self, class: &str, further: &Value) -> Option<ServerBuilder> {
        with_python(worker_models::folder(&[("m", class)]).settings(&self.settings(further)))
    }

    fn produce(&self, records: &[KafkaRecord]) {
        self.broker.produce(&self.input, records);
    }

    fn answers(&self, count: usize) -> Vec<KafkaRecord> {
        self.broker.consume(&self.output, count)
    }

    fn dead(&self, count: usize) -> Vec<KafkaRecord> {
        self.broker.consume(&self.dead_letters, count)
    }

    fn wait_until_committed(&self) {
        self.broker.wait_until_committed(&self.group, &self.input);
    }
}

/// Returns a request for the iris model, whose answer is class 0.
fn iris() -> Value {
    json!({"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]})
}

fn iris_record(key: &str) -> KafkaRecord {
    KafkaRecord::json(&iris()).key(key).with_header("mlserver-model", IRIS)
}

/// Returns a request for the model `m` in Python.
pub(super) fn number(value: i64) -> KafkaRecord {
    KafkaRecord::json(&json!({"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [value]}]}))
        .with_header("mlserver-model", "m")
}

fn text(value: &str) -> KafkaRecord {
    KafkaRecord::json(&json!({"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": [value]}]}))
        .with_header("mlserver-model", "m")
}

fn keys(records: &[KafkaRecord]) -> Vec<String> {
    records.iter().map(|record| record.key_text().unwrap().to_owned()).collect()
}

fn unique_keys(records: &[KafkaRecord]) -> BTreeSet<String> {
    keys(records).into_iter().collect()
}

fn numbered(range: std::ops::Range<usize>) -> Vec<KafkaRecord> {
    range.map(|number| iris_record(&format!("k{number}"))).collect()
}

fn expected_keys(count: usize) -> BTreeSet<String> {
    (0..count).map(|number| format!("k{number}")).collect()
}

#[test]
fn kafka_answers_have_the_key_the_headers_and_the_form_of_their_records() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 2);
    let _server = topics.iris(&json!({"kafka_topic_models": {&topics.input: IRIS}})).start();

    let mut binary = json!({"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32",
        "parameters": {"binary_data_size": 16}}], "outputs": [{"name": "predict", "parameters": {"binary_data": true}}]})
    .to_string()
    .into_bytes();
    let length = binary.len().to_string();
    binary.extend([5.1_f32, 3.5, 1.4, 0.2].iter().flat_map(|value| value.to_le_bytes()));
    let values: Vec<u8> = [5.1_f32, 3.5, 1.4, 0.2].iter().flat_map(|value| value.to_le_bytes()).collect();
    let message = ModelInferRequest { id: "own".to_owned(), ..raw_request(IRIS, "FP32", &[1, 4], values) };
    topics.produce(&[
        iris_record("json").with_header("x-own", "1").with_header("mlserver-request-id", "given"),
        KafkaRecord::new(binary).key("binary").with_header("inference-header-content-length", length),
        KafkaRecord::new(message.encode_to_vec()).with_header("content-type", "application/x-protobuf"),
        KafkaRecord::json(&iris()),
    ]);

    let answers = topics.answers(4);
    let by_key: BTreeMap<_, _> = answers.iter().map(|answer| (answer.key_text().unwrap(), answer)).collect();
    let json = by_key["json"];
    assert_eq!(json.value_json()["outputs"][0]["data"], json!([0]));
    assert_eq!((json.value_json()["id"].as_str(), json.header("Ce-Id")), (Some("given"), Some("given")));
    assert_eq!(
        (json.header("x-own"), json.header("mlserver-model"), json.header("content-type")),
        (Some("1"), None, None)
    );
    let ce = ["Ce-Specversion", "Ce-Source", "Ce-Type", "Ce-Modelid", "Ce-Inferenceservicename", "Ce-Endpoint"];
    let values = ce.map(|name| json.header(name).unwrap());
    let response = "io.seldon.serving.inference.response";
    assert_eq!(values, ["0.3", "io.seldon.serving.deployment.mlserver", response, IRIS, "mlserver", IRIS]);

    let binary = by_key["binary"];
    let length: usize = binary.header("inference-header-content-length").unwrap().parse().unwrap();
    assert_eq!(binary.header("content-type"), Some("application/octet-stream"));
    assert_eq!(binary.value.as_ref().unwrap()[length..], 0_i64.to_le_bytes());

    let protobuf = by_key["own"];
    let message = ModelInferResponse::decode(protobuf.value.as_deref().unwrap()).unwrap();
    assert_eq!((message.model_name.as_str(), message.id.as_str()), (IRIS, "own"));
    assert_eq!(message.raw_output_contents, [0_i64.to_le_bytes().as_slice()]);
    assert_eq!(protobuf.header("content-type"), Some("application/x-protobuf"));

    let generated = answers.iter().find(|answer| answer.key_text().unwrap().len() == 36).unwrap();
    assert_eq!(generated.value_json()["id"], generated.key_text().unwrap());
    topics.wait_until_committed();
}

#[test]
fn kafka_records_are_answered_by_a_graph_of_models() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 1);
    let manifest = json!({
        "apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "flower"},
        "spec": {
            "steps": [{"name": IRIS}, {"name": "label", "inputs": [IRIS]}],
            "output": {"steps": ["label"]},
        },
    });
    let label = json!({"outputs": [{"input": "predict", "name": "label", "apply": [{"table": ["setosa", "other"]}]}]});
    let folder = Folder::iris()
        .file("flower/graph.json", manifest.to_string())
        .file(
            "flower/model-settings.json",
            json!({"name": "flower", "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.json"}})
                .to_string(),
        )
        .file(
            "label/model-settings.json",
            json!({"name": "label", "implementation": "mlserver.Map", "parameters": {"extra": label}}).to_string(),
        )
        .settings(&topics.settings(&json!({})));
    let server = ServerBuilder::new(folder).start();

    let to_graph = |record: KafkaRecord| record.with_header("mlserver-model", "flower");
    let values: Vec<u8> = [5.1_f32, 3.5, 1.4, 0.2].iter().flat_map(|value| value.to_le_bytes()).collect();
    let message = ModelInferRequest { id: "own".to_owned(), ..raw_request("flower", "FP32", &[1, 4], values) };
    let mut shape = iris();
    shape["inputs"][0]["shape"] = json!([1, 3]);
    shape["inputs"][0]["data"] = json!([1, 2, 3]);
    topics.produce(&[
        to_graph(KafkaRecord::json(&iris())).key("json"),
        to_graph(KafkaRecord::new(message.encode_to_vec())).with_header("content-type", "application/x-protobuf"),
        to_graph(KafkaRecord::json(&shape)).key("shape"),
    ]);

    let answers = topics.answers(2);
    let by_key: BTreeMap<_, _> = answers.iter().map(|answer| (answer.key_text().unwrap(), answer)).collect();
    let json = by_key["json"];
    let body = json.value_json();
    assert_eq!((&body["model_name"], &body["outputs"][0]["data"]), (&json!("flower"), &json!(["setosa"])), "{body}");
    assert_eq!(json.header("Ce-Modelid"), Some("flower"));
    let message = ModelInferResponse::decode(by_key["own"].value.as_deref().unwrap()).unwrap();
    assert_eq!((message.model_name.as_str(), message.id.as_str()), ("flower", "own"));
    assert_eq!(message.outputs[0].name, "label");

    let dead = topics.dead(1).pop().unwrap();
    assert_eq!((dead.key_text(), dead.header("mlserver-error-status")), (Some("shape"), Some("400")));
    let error = dead.header("mlserver-error").unwrap();
    assert!(error.starts_with(&format!("step \"{IRIS}\": ")), "{error}");
    topics.wait_until_committed();
    let metrics = server.scrape();
    let counted = "graph_step_duration_seconds_count{graph=\"flower\",step=\"label\"} 2";
    assert!(metrics.text().contains(counted), "{}", metrics.text());
}

#[test]
fn kafka_models_see_credentials_in_headers_only_if_they_are_for_them() {
    let Some(broker) = Broker::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    std::fs::write(&keys, "[]").unwrap();
    for (settings, seen) in [
        (json!({"api_keys_file": keys}), json!([])),
        (json!({"api_keys_file": keys, "forward_headers": ["authorization"]}), json!(["authorization=Bearer a"])),
        // Without access control, they are not for this server.
        (json!({}), json!(["authorization=Bearer a", "cookie=b=c"])),
    ] {
        let topics = Topics::new(broker, 1);
        let Some(server) = topics.python("Credentials", &settings) else { return };
        let _server = server.start();
        let record = number(1).with_header("authorization", "Bearer a").with_header("cookie", "b=c");
        topics.produce(&[record.with_header("x-own", "1")]);
        let answer = topics.answers(1).pop().unwrap();
        assert_eq!(answer.value_json()["outputs"][0]["data"], seen, "{answer:?}");
    }
}

#[test]
fn kafka_records_that_cannot_be_answered_become_dead_letters() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 1);
    let server = topics.iris(&json!({})).start();
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let mut shape = iris();
    shape["inputs"][0]["shape"] = json!([1, 3]);
    shape["inputs"][0]["data"] = json!([1, 2, 3]);
    let to_model = |record: KafkaRecord| record.with_header("mlserver-model", IRIS);
    let records = [
        ("json", "422", to_model(KafkaRecord::new("{"))),
        ("array", "422", to_model(KafkaRecord::new("[1]"))),
        ("model", "422", KafkaRecord::json(&iris())),
        ("unknown", "404", KafkaRecord::json(&iris()).with_header("mlserver-model", "nope")),
        ("version", "404", iris_record("").with_header("mlserver-version", "v9")),
        ("shape", "400", to_model(KafkaRecord::json(&shape))),
        ("tombstone", "422", KafkaRecord { value: None, ..to_model(KafkaRecord::new("")) }),
        ("type", "422", iris_record("").with_header("content-type", "text/plain")),
        ("length", "400", iris_record("").with_header("inference-header-content-length", "99999")),
        ("encoding", "415", iris_record("").with_header("content-encoding", "gzip")),
        ("method", "422", iris_record("").with_header("mlserver-method", "delete")),
        ("priority", "400", iris_record("").with_header("request-priority", "high")),
        ("protobuf", "400", to_model(KafkaRecord::new([8_u8])).with_header("content-type", "application/protobuf")),
        ("late", "504", iris_record("").with_header("request-timeout", "5").timestamp(now - 60_000)),
    ];
    let sent: Vec<_> =
        records.iter().map(|(key, _, record)| record.clone().key(*key).with_header("x-own", "1")).collect();
    topics.produce(&sent);
    topics.produce(&[iris_record("good")]);
    assert_eq!(keys(&topics.answers(1)), ["good"]);

    let dead = topics.dead(records.len());
    for (offset, (key, status, _)) in records.iter().enumerate() {
        let letter = dead.iter().find(|letter| letter.key_text() == Some(key)).unwrap();
        let sent = &sent[offset];
        assert_eq!(
            letter.header("mlserver-error-status"),
            Some(*status),
            "{key}: {:?}",
            letter.header("mlserver-error")
        );
        assert_eq!(letter.value, sent.value, "{key}");
        assert_eq!(letter.headers[..sent.headers.len()], sent.headers[..], "{key}");
        assert!(letter.header("mlserver-error").unwrap().len() > 10, "{key}");
        let place =
            ["topic", "partition", "offset"].map(|name| letter.header(&format!("mlserver-error-{name}")).unwrap());
        assert_eq!(place, [topics.input.as_str(), "0", &offset.to_string()], "{key}");
        assert_eq!(letter.header("mlserver-error-attempts"), Some("1"), "{key}");
    }
    topics.wait_until_committed();
    let metrics = server.scrape();
    let counted = format!("kafka_records_total{{topic=\"{}\",outcome=\"dead_letter\"}} 14\n", topics.input);
    assert!(metrics.text().contains(&counted), "{}", metrics.text());

    // A dead letter that is sent again, as it is, is an ordinary record.
    let again = dead.iter().find(|letter| letter.key_text() == Some("unknown")).unwrap();
    topics.produce(&[KafkaRecord { timestamp: None, partition: None, offset: None, ..again.clone() }]);
    let again = topics.dead(records.len() + 1).pop().unwrap();
    assert_eq!(again.headers.iter().filter(|(name, _)| name == "mlserver-error-status").count(), 1);
    assert_eq!(again.header("mlserver-error-offset"), Some("15"));
}

#[test]
fn kafka_records_are_tried_again_when_their_model_fails() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 1);
    let settings = json!({"kafka_max_attempts": 2, "kafka_ordering": "partition"});
    let Some(server) = topics.python("Trouble", &settings) else { return };
    let _server = server.start();
    let tried = ["value", "segv", "exit", "mlserver", "none"];
    let records: Vec<_> = tried.iter().map(|what| text(what).key(*what)).collect();
    topics.produce(&records);
    topics.produce(&[text("pid").key("good")]);
    assert_eq!(keys(&topics.answers(1)), ["good"]);
    let dead = topics.dead(tried.len());
    let expected = [
        ("value", "500", "2"),
        ("segv", "503", "2"),
        ("exit", "503", "2"),
        ("mlserver", "418", "1"),
        ("none", "500", "2"),
    ];
    for (key, status, attempts) in expected {
        let letter = dead.iter().find(|letter| letter.key_text() == Some(key)).unwrap();
        let found = ["status", "attempts"].map(|name| letter.header(&format!("mlserver-error-{name}")).unwrap());
        assert_eq!(found, [status, attempts], "{key}: {:?}", letter.header("mlserver-error"));
    }
    topics.wait_until_committed();
}

#[test]
fn kafka_record_that_ends_workers_takes_no_other_record_with_it() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 1);
    let Some(server) = topics.python("Trouble", &json!({"kafka_max_attempts": 3})) else { return };
    let _server = server.start();
    let what = |index: usize| {
        if index % 20 == 10 { text("segv").key(format!("poison{index}")) } else { text("pid").key(format!("k{index}")) }
    };
    topics.produce(&(0..60).map(what).collect::<Vec<_>>());
    assert_eq!(unique_keys(&topics.answers(57)).len(), 57);
    assert_eq!(unique_keys(&topics.dead(3)), ["poison10", "poison30", "poison50"].map(str::to_owned).into());
}

#[test]
fn kafka_records_wait_for_an_overloaded_model() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 2);
    let folder = worker_models::folder(&[("m", "Coroutine")]).settings(&topics.settings(&json!({"max_in_flight": 2})));
    let Some(server) = with_python(folder) else { return };
    let _server = server.env("MLSERVER_MODEL_MAX_QUEUE_REQUESTS", "1").start();
    let records: Vec<_> = (0..100).map(|index| number(5).key(format!("k{index}"))).collect();
    topics.produce(&records);
    assert_eq!(unique_keys(&topics.answers(100)), expected_keys(100));
    topics.wait_until_committed();
    assert_eq!(broker.end_offsets(&topics.dead_letters), [0]);
}

#[test]
fn kafka_readiness_includes_the_consumer_and_survives_a_missing_broker() {
    let Some(mut broker) = Broker::own() else { return };
    let topics = Topics::new(&broker, 1);
    topics.produce(&[iris_record("k0")]);
    let settings = topics.settings(&json!({}));
    let (input, output) = (topics.input.clone(), topics.output.clone());
    broker.stop();
    let server = ServerBuilder::new(Folder::iris().settings(&settings)).listen();
    server.wait_for_log("Kafka cannot be reached at");
    server.wait_for_log("Loaded model");
    assert_eq!(server.get("/v2/health/live").status, 200);
    assert_eq!(server.get("/v2/health/ready").status, 400);
    assert_eq!(server.post("/v2/models/iris-xgboost/infer", iris().to_string()).status, 200);
    broker.start_again();
    kafka_wait_until("the server is ready", || server.get("/v2/health/ready").status == 200);
    assert_eq!(keys(&broker.consume(&output, 1)), ["k0"]);

    // And when it goes away in the middle of the work.
    broker.produce(&input, &numbered(1..2000));
    broker.kill();
    broker.start_again();
    let answers = broker.consume_at_least(&output, 2000, "read_committed");
    assert_eq!(unique_keys(&answers), expected_keys(2000));
    kafka_wait_until("it is logged", || server.log().contains("can be reached again"));
    let log = server.log();
    assert!(log.matches("Kafka cannot be reached").count() <= 3, "{log}");
}

#[test]
fn kafka_readiness_of_the_consumer_is_a_setting() {
    let settings = json!({"kafka_enabled": true, "kafka_servers": "127.0.0.1:9", "kafka_readiness": false});
    let server = ServerBuilder::new(Folder::iris().settings(&settings)).start();
    assert_eq!(server.get("/v2/health/ready").status, 200);
    let exit = server.terminate();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
}

#[test]
fn kafka_properties_are_checked_at_the_start() {
    for (property, value, said) in [("no.such.property", "1", "no.such.property"), ("acks", "many", "acks")] {
        let settings = json!({"kafka_enabled": true, "kafka_config": {property: value}});
        let exit = ServerBuilder::new(Folder::iris().settings(&settings)).run();
        assert_eq!(exit.code, Some(1), "{}", exit.stderr);
        assert!(exit.stderr.contains("invalid Kafka configuration") && exit.stderr.contains(said), "{}", exit.stderr);
    }
}

#[test]
fn kafka_stop_answers_what_is_in_flight_and_leaves_the_rest() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 1);
    let Some(server) = topics.python("Recorder", &json!({"kafka_max_in_flight": 4, "kafka_ordering": "partition"}))
    else {
        return;
    };
    let server = server.start();
    let records: Vec<_> = (0..30).map(|index| number(200 + index).key(format!("k{index}"))).collect();
    topics.produce(&records);
    server.wait_for_log("running 202");
    let exit = server.terminate();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert!(exit.stdout.contains("Left the Kafka consumer group"), "{}", exit.stdout);
    let committed = usize::try_from(broker.committed(&topics.group, &topics.input)[0].unwrap()).unwrap();
    assert!((2..20).contains(&committed), "{committed}");
    assert_eq!(unique_keys(&topics.answers(committed)), expected_keys(committed));
    assert_eq!(broker.members(&topics.group), None);

    let _server = topics.python("Recorder", &json!({})).unwrap().start();
    assert_eq!(unique_keys(&topics.answers(30)), expected_keys(30));
}

#[test]
fn kafka_group_members_share_the_records_and_lose_and_repeat_none_when_they_change() {
    let Some(broker) = Broker::shared() else { return };
    for assignor in ["cooperative-sticky", "range"] {
        let topics = Topics::new(broker, 4);
        let config = json!({"kafka_config": {"partition.assignment.strategy": assignor}});
        let first = topics.iris(&config).start();
        let mut count = 0;
        let mut produce = || {
            topics.produce(&numbered(count..count + 500));
            count += 500;
        };
        produce();
        let second = topics.iris(&config).start();
        produce();
        let third = topics.iris(&config).start();
        produce();
        kafka_wait_until("the group has three members", || broker.members(&topics.group) == Some(3));
        let mut exits = vec![second.terminate()];
        produce();
        exits.push(first.terminate());
        produce();
        assert_eq!(unique_keys(&topics.answers(2500)), expected_keys(2500), "{assignor}");
        topics.wait_until_committed();
        exits.push(third.terminate());
        for exit in exits {
            assert_eq!(exit.code, Some(0), "{}", exit.stderr);
            // A rebalance waits for records that have been started, and for no others.
            assert!(!exit.stderr.contains("are still in flight"), "{assignor}: {}", exit.stderr);
        }
    }
}

#[test]
fn kafka_at_least_once_loses_nothing_when_servers_are_killed() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 3);
    let settings = json!({"kafka_max_in_flight": 200, "kafka_config": {"session.timeout.ms": 6000}});
    let mut produced = 0;
    for _ in 0..3 {
        let server = topics.iris(&settings).start();
        topics.produce(&numbered(produced..produced + 2000));
        produced += 2000;
        let answered =
            || broker.end_offsets(&topics.output).iter().sum::<i64>() > i64::try_from(produced).unwrap() - 1500;
        kafka_wait_until("some are answered", answered);
        server.signal(Signal::KILL);
        server.ended();
    }
    let _server = topics.iris(&settings).start();
    topics.wait_until_committed();
    let answers = broker.consume_at_least(&topics.output, produced, "read_committed");
    assert_eq!(unique_keys(&answers), expected_keys(produced));
    // Each kill repeats at most the records in flight.
    assert!(answers.len() <= produced + 3 * 200, "{}", answers.len());
}

#[test]
fn kafka_exactly_once_shows_each_answer_once_when_servers_are_killed() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 3);
    let settings = json!({"kafka_delivery": "exactly_once", "kafka_transactional_id": topics.group,
        "kafka_config": {"session.timeout.ms": 6000}});
    let mut produced = 0;
    for _ in 0..4 {
        let server = topics.iris(&settings).start();
        topics.produce(&numbered(produced..produced + 1000));
        // A broken record among them is a dead letter once.
        topics.produce(&[KafkaRecord::new("{").key(format!("broken{produced}"))]);
        produced += 1000;
        let wanted = i64::try_from(produced).unwrap() - fastrand::i64(100..900);
        kafka_wait_until("some are answered", || broker.end_offsets(&topics.output).iter().sum::<i64>() > wanted);
        server.signal(Signal::KILL);
        server.ended();
    }
    let _server = topics.iris(&settings).start();
    topics.wait_until_committed();
    assert_eq!(unique_keys(&topics.answers(produced)), expected_keys(produced));
    assert_eq!(unique_keys(&topics.dead(4)).len(), 4);
}

#[test]
fn kafka_order_is_kept_by_key_or_partition() {
    let Some(broker) = Broker::shared() else { return };
    for ordering in ["key", "partition"] {
        let topics = Topics::new(broker, 2);
        let Some(server) = topics.python("Coroutine", &json!({"kafka_ordering": ordering})) else { return };
        let _server = server.start();
        // Earlier records take longer, so without an order the later ones would be answered first.
        let records: Vec<_> = (0..40)
            .map(|index| number(40 - index).key(format!("key{}", index % 4)).with_header("x-index", index.to_string()))
            .collect();
        topics.produce(&records);
        let answers = topics.answers(40);
        for key in 0..4 {
            let key = format!("key{key}");
            let indexes: Vec<i64> = answers
                .iter()
                .filter(|answer| answer.key_text() == Some(&key))
                .map(|answer| answer.header("x-index").unwrap().parse().unwrap())
                .collect();
            assert!(indexes.len() == 10 && indexes.is_sorted(), "{ordering}, {key}: {indexes:?}");
        }
    }
}

#[test]
fn kafka_topics_of_a_list_and_of_a_regular_expression_are_read() {
    let Some(broker) = Broker::shared() else { return };
    let listed = Topics::new(broker, 1);
    let prefix = Broker::unique("matched");
    let matched: Vec<String> = (0..2).map(|index| format!("{prefix}.{index}")).collect();
    for topic in &matched {
        broker.create_topic(topic, 1, 1);
    }
    let input = json!([listed.input, format!("^{prefix}.*")]);
    let further = json!({"kafka_topic_input": input, "kafka_config": {"topic.metadata.refresh.interval.ms": 500}});
    let _server = listed.iris(&further).start();
    listed.produce(&[iris_record("listed")]);
    broker.produce(&matched[0], &[iris_record("first")]);
    // Its dead letter goes to a topic that the expression matches, and is not read.
    broker.produce(&matched[1], &[iris_record("second"), KafkaRecord::new("{").key("broken")]);
    assert_eq!(unique_keys(&listed.answers(3)), ["first", "listed", "second"].map(str::to_owned).into());
    assert_eq!(keys(&broker.consume(&format!("{}-dead-letters", matched[1]), 1)), ["broken"]);
    // A topic that is created later.
    let later = format!("{prefix}.later");
    broker.create_topic(&later, 1, 1);
    broker.produce(&later, &[iris_record("later")]);
    assert!(unique_keys(&listed.answers(4)).contains("later"));
    let committed = || broker.committed(&listed.group, &format!("{}-dead-letters", matched[1]))[0];
    assert_eq!(committed(), None);
}

#[test]
fn kafka_topic_that_does_not_exist_is_created_or_waited_for() {
    let Some(broker) = Broker::shared() else { return };
    for creates in [true, false] {
        let input = Broker::unique("later");
        let topics = Topics {
            broker,
            output: format!("{input}-output"),
            dead_letters: format!("{input}-dead-letters"),
            group: format!("{input}-group"),
            input,
        };
        broker.create_topic(&topics.output, 1, 1);
        let server = topics.iris(&json!({"kafka_config": {"allow.auto.create.topics": creates}})).listen();
        if !creates {
            server.wait_for_log("A Kafka topic does not exist yet");
            broker.create_topic(&topics.input, 2, 1);
        }
        server.wait_until_ready();
        topics.produce(&[iris_record("k")]);
        assert_eq!(keys(&topics.answers(1)), ["k"], "{creates}");
    }
}

#[test]
fn kafka_answers_that_are_too_large_become_dead_letters() {
    let Some(broker) = Broker::shared() else { return };
    for delivery in ["at_least_once", "exactly_once"] {
        let input = broker.topic("input", 1);
        let topics = Topics {
            broker,
            output: format!("{input}-output"),
            dead_letters: format!("{input}-dead-letters"),
            group: format!("{input}-group"),
            input,
        };
        let small = rdkafka::admin::NewTopic::new(&topics.output, 1, rdkafka::admin::TopicReplication::Fixed(1));
        broker.create(&small.set("max.message.bytes", "1000"));
        let folder = Folder::new().with_identity("m").settings(&topics.settings(&json!({"kafka_delivery": delivery})));
        let _server = ServerBuilder::new(folder).start();
        topics.produce(&[text(&"x".repeat(5000)).key("large"), text("x").key("small")]);
        assert_eq!(keys(&topics.answers(1)), ["small"], "{delivery}");
        let letter = topics.dead(1).remove(0);
        assert_eq!((letter.key_text(), letter.header("mlserver-error-status")), (Some("large"), Some("413")));
        topics.wait_until_committed();
    }
}

#[test]
fn kafka_lag_and_times_are_metrics() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 1);
    let Some(server) = topics.python("Gated", &json!({"kafka_max_in_flight": 2})) else { return };
    let server = server.start();
    let records: Vec<_> = (0..10).map(number).collect();
    topics.produce(&records);
    let lag = |count: usize| format!("kafka_consumer_lag{{topic=\"{}\",partition=\"0\"}} {count}\n", topics.input);
    kafka_wait_until("the lag is known", || server.scrape().text().contains(&lag(10)));
    assert!(server.scrape().text().contains("kafka_records_in_flight 2\n"), "{}", server.scrape().text());
    std::fs::write(server.folder.path("go"), "").unwrap();
    assert_eq!(topics.answers(10).len(), 10);
    kafka_wait_until("there is no lag", || server.scrape().text().contains(&lag(0)));
    let metrics = server.scrape();
    for line in ["kafka_record_duration_seconds_count 10\n", "kafka_record_age_seconds_count 10\n"] {
        assert!(metrics.text().contains(line), "{}", metrics.text());
    }
    assert!(metrics.text().contains("kafka_assigned_partitions 1\n"));
}

#[test]
fn kafka_requests_wait_at_most_for_half_of_the_servers_slots() {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, 1);
    let folder = worker_models::folder(&[("m", "Gated")]).with_identity("i");
    let Some(server) = with_python(folder.settings(&topics.settings(&json!({"max_in_flight": 4})))) else { return };
    let server = server.start();
    let records: Vec<_> = (0..20).map(|_| number(0)).collect();
    topics.produce(&records);
    server.wait_for_log("running 0");
    let body = json!({"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}]}).to_string();
    assert_eq!(server.post("/v2/models/i/infer", &body).status, 200);
    std::fs::write(server.folder.path("go"), "").unwrap();
    assert_eq!(topics.answers(20).len(), 20);
}

#[test]
#[ignore = "two brokers with replication; run by hand, see tests/README.md"]
fn kafka_failover_to_another_broker_loses_nothing() {
    let Some((first, mut second)) = Broker::cluster() else { return };
    let input = Broker::unique("input");
    let topics = Topics {
        broker: &first,
        output: format!("{input}-output"),
        dead_letters: format!("{input}-dead-letters"),
        group: format!("{input}-group"),
        input,
    };
    for topic in [&topics.input, &topics.output] {
        first.create_topic(topic, 4, 2);
    }
    let servers = [first.address(), second.address()].join(",");
    let _server = topics.iris(&json!({"kafka_servers": servers})).start();
    let (first_count, all_count) = (20_000, 22_000);
    let answered = || first.end_offsets(&topics.output).iter().sum::<i64>();
    std::thread::scope(|scope| {
        scope.spawn(|| topics.produce(&numbered(0..first_count)));
        kafka_wait_until("there is no answer", || answered() > 0);
        // Counted before, because some partitions have no leader for a while afterwards.
        let before = usize::try_from(answered()).unwrap();
        second.kill();
        assert!(before < first_count, "the broker ended too late for this test");
    });
    topics.produce(&numbered(first_count..all_count));
    let answers = first.consume_at_least(&topics.output, all_count, "read_committed");
    assert_eq!(unique_keys(&answers), expected_keys(all_count));
    topics.wait_until_committed();
}
