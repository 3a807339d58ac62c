//! Streamed responses over REST: server-sent events.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use mlserver::runtimes::{ResponseStream, RuntimeError};
use mlserver::types::{InferenceResponse, Tensor};
use serde_json::{Value, json};

use crate::support::grpc::unused_runtime;
use crate::support::{EmbeddedServer, FnRuntime, Folder, PATIENCE, TestServer, wait_until};

const REQUEST: &str = r#"{"id":"q","inputs":[{"name":"x","shape":[2],"datatype":"INT32","data":[1,2]}]}"#;

/// Answers with numbers that count up from 0.
#[derive(Debug, Default, Clone)]
struct CountingRuntime {
    /// The number of answers.
    answers: usize,
    /// Fails instead of giving the answer with this number.
    fails_at: Option<usize>,
    /// The number of elements in an answer.
    width: usize,
    /// Whether the stream stays open after the last answer.
    hangs: bool,
    made: Arc<AtomicUsize>,
    /// Cloned for as long as a stream exists.
    alive: Arc<()>,
}

impl CountingRuntime {
    fn answer(&self, number: usize) -> Result<InferenceResponse, RuntimeError> {
        if self.fails_at == Some(number) {
            return Err(RuntimeError::no_request());
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        let values = vec![i64::try_from(number).unwrap(); self.width];
        let output = Tensor::from_elements("o", vec![self.width], &values).unwrap();
        let mut response = InferenceResponse { outputs: vec![output], ..InferenceResponse::default() };
        response.headers.insert("x-number", number.into());
        Ok(response)
    }

    fn runtime(self) -> FnRuntime {
        let counting = Arc::new(self);
        unused_runtime().stream(move |_, _| -> ResponseStream {
            let (counting, alive) = (Arc::clone(&counting), Arc::clone(&counting.alive));
            let (count, hangs) = (counting.answers, counting.hangs);
            let answers = stream::iter(0..count).map(move |number| {
                let _ = &alive;
                counting.answer(number)
            });
            if hangs { Box::pin(answers.chain(stream::pending())) } else { Box::pin(answers) }
        })
    }
}

/// Posts a request and returns the connection after the response's head, ready to read events.
fn open(server: &EmbeddedServer) -> BufReader<TcpStream> {
    let mut connection = TcpStream::connect(server.http).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = REQUEST.len();
    write!(
        connection,
        "POST /v2/models/m/infer_stream HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n{REQUEST}"
    )
    .unwrap();
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    reader
}

async fn post(server: &EmbeddedServer) -> crate::support::Answer {
    let client = server.client();
    tokio::task::spawn_blocking(move || client.post("/v2/models/m/infer_stream", REQUEST)).await.unwrap()
}

fn events(text: &str) -> Vec<Value> {
    let events = text.strip_suffix("\n\n").unwrap().split("\n\n");
    events.map(|event| serde_json::from_str(event.rsplit_once("data: ").unwrap().1).unwrap()).collect()
}

#[test]
fn stream_native_model_sends_one_event() {
    let server = TestServer::start(Folder::iris().with_identity("echo"));
    let answer = server.post("/v2/models/echo/infer_stream", REQUEST);
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/event-stream; charset=utf-8"));
    assert_eq!(
        answer.text(),
        "data: {\"model_name\":\"echo\",\"id\":\"q\",\"parameters\":{\"headers\":{\"Ce-Specversion\":\"0.3\",\
         \"Ce-Source\":\"io.seldon.serving.deployment.mlserver\",\"Ce-Type\":\"io.seldon.serving.inference.response\",\
         \"Ce-Modelid\":\"echo\",\"Ce-Inferenceservicename\":\"mlserver\",\"Ce-Endpoint\":\"echo\",\"Ce-Id\":\"q\",\
         \"Ce-Requestid\":\"q\"}},\"outputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"INT32\",\"data\":[1,2]}]}\n\n"
    );
    let iris = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;
    for path in ["infer_stream", "generate_stream", "versions/v1.0.0/infer_stream", "versions/v1.0.0/generate_stream"] {
        let answer = server.post(&format!("/v2/models/iris-xgboost/{path}"), iris);
        let events = events(answer.text());
        assert_eq!(events.len(), 1, "{path}");
        assert_eq!(events[0]["outputs"][0]["shape"], json!([1, 1]));
        assert_eq!(events[0]["model_version"], "v1.0.0");
    }
    let metrics = server.scrape();
    assert!(metrics.text().contains(r#"model_infer_request_success_total{model="echo",version="None"} 1"#));
    assert!(metrics.text().contains(r#"path="/v2/models/{model_name}/infer_stream",status_code="200""#));
}

#[test]
fn stream_error_before_the_first_event_has_its_status() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    assert_eq!(server.post("/v2/models/nope/infer_stream", REQUEST).error(404), "Model nope not found");
    assert!(server.post("/v2/models/echo/infer_stream", "{").error(422).contains("JSON"));
    let unknown = REQUEST.replace("}]}", r#"}],"outputs":[{"name":"y"}]}"#);
    assert!(server.post("/v2/models/echo/infer_stream", unknown).error(400).contains("(y was received)"));
    assert_eq!(server.get("/v2/models/echo/infer_stream").status, 405);
}

#[tokio::test]
async fn stream_every_answer_is_an_event() {
    let server =
        EmbeddedServer::serve(CountingRuntime { answers: 3, width: 1, ..CountingRuntime::default() }.runtime()).await;
    let answer = post(&server).await;
    let events = events(answer.text());
    assert_eq!(events.len(), 3);
    for (number, event) in events.iter().enumerate() {
        assert_eq!((&event["id"], &event["model_name"]), (&json!("q"), &json!("m")));
        assert_eq!(event["outputs"][0]["data"], json!([number]));
        assert_eq!(event["parameters"]["headers"]["x-number"], number.to_string());
        assert_eq!(event["parameters"]["headers"]["Ce-Id"], "q");
    }
    assert_eq!(answer.header("ce-id"), "", "headers stay in the events");
    assert_eq!(server.inference.in_flight(), 0);
}

#[tokio::test]
async fn stream_without_answers_has_no_events() {
    let server = EmbeddedServer::serve(CountingRuntime::default().runtime()).await;
    let answer = post(&server).await;
    assert_eq!((answer.status, answer.text()), (200, ""));
}

#[tokio::test]
async fn stream_error_after_events_is_the_last_event() {
    let model = CountingRuntime { answers: 5, width: 1, fails_at: Some(2), ..CountingRuntime::default() };
    let server = EmbeddedServer::serve(model.runtime()).await;
    let answer = post(&server).await;
    assert_eq!(answer.status, 200);
    let last = answer.text().split("\n\n").nth(2).unwrap();
    let (event, data) = last.split_once('\n').unwrap();
    assert_eq!(event, "event: error");
    let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(data, json!({"error": RuntimeError::no_request().to_string(), "status": 400}));
    assert_eq!(events(answer.text()).len(), 3);
    assert_eq!(server.inference.in_flight(), 0);
}

#[tokio::test]
async fn stream_error_as_first_answer_has_its_status() {
    let server = EmbeddedServer::serve(
        CountingRuntime { answers: 5, fails_at: Some(0), ..CountingRuntime::default() }.runtime(),
    )
    .await;
    assert_eq!(post(&server).await.error(400), RuntimeError::no_request().to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_slow_reader_applies_backpressure() {
    // Each event is about 200 KB, so all of them would be 2 GB.
    let model = CountingRuntime { answers: 10_000, width: 100_000, ..CountingRuntime::default() };
    let (made, alive) = (Arc::clone(&model.made), Arc::clone(&model.alive));
    let server = EmbeddedServer::serve(model.runtime()).await;
    let mut reader = tokio::task::block_in_place(|| open(&server));
    let mut line = String::new();
    tokio::task::block_in_place(|| reader.read_line(&mut line)).unwrap();
    // Events are generated until the socket buffers are full, and then no more.
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = made.load(Ordering::Relaxed);
        if now == before {
            break;
        }
        before = now;
    }
    assert!(before < 200, "{before} answers were made for one that was read");
    assert_eq!(server.inference.in_flight(), 1);

    // A disconnect cancels the prediction.
    drop(reader);
    tokio::task::block_in_place(|| {
        wait_until("the stream lives on", || Arc::strong_count(&alive) == 2);
        wait_until("the permit is not free", || server.inference.in_flight() == 0);
    });
    assert!(made.load(Ordering::Relaxed) < 10_000);
}

#[tokio::test]
async fn stream_client_disconnect_cancels_an_idle_model() {
    let alive = Arc::new(());
    let counted = Arc::clone(&alive);
    let idle_after_first = unused_runtime().stream(move |_, _| {
        let alive = Arc::clone(&counted);
        let never = stream::pending().map(move |(): ()| {
            let _ = &alive;
            Ok(InferenceResponse::default())
        });
        Box::pin(stream::iter([Ok(InferenceResponse::default())]).chain(never))
    });
    let server = EmbeddedServer::serve(idle_after_first).await;
    let connection = tokio::task::spawn_blocking({
        let server = server.clone();
        move || {
            let mut reader = open(&server);
            let mut line = String::new();
            // The chunk's size, then the event.
            reader.read_line(&mut line).unwrap();
            reader.read_line(&mut line).unwrap();
            assert!(line.contains("data: {"), "{line}");
            reader
        }
    });
    let connection = connection.await.unwrap();
    assert_eq!(Arc::strong_count(&alive), 3);
    let left = Instant::now();
    drop(connection);
    while Arc::strong_count(&alive) > 2 {
        assert!(left.elapsed() < PATIENCE, "the stream lives on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(server.inference.in_flight(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_request_timeout_ends_the_stream() {
    let deadline = [("content-type", "application/json"), ("request-timeout", "0.2")];
    let message = "the client's deadline has passed";
    for answers in [0, 2] {
        let count = CountingRuntime { answers, width: 1, hangs: true, ..CountingRuntime::default() };
        let alive = Arc::clone(&count.alive);
        let server = EmbeddedServer::serve(count.runtime()).await;
        let client = server.client();
        let ask = move || client.post_with("/v2/models/m/infer_stream", &deadline, REQUEST);
        let answer = tokio::task::spawn_blocking(ask).await.unwrap();
        if answers == 0 {
            assert_eq!(answer.error(504), message);
        } else {
            assert_eq!(answer.status, 200);
            assert_eq!(events(answer.text())[answers..], [json!({"error": message, "status": 504})]);
        }
        wait_until("the model's work has ended", || Arc::strong_count(&alive) == 2);
        assert_eq!(server.inference.in_flight(), 0);
    }
}
