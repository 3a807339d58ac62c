//! Requests under pressure: full queues, timeouts, and clients that disconnect.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use mlserver::settings::ModelSettings;
use mlserver::types::{Datatype, InferenceResponse, Tensor};
use prost::Message;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tonic::Code;

use crate::support::grpc::{Http2, framed, infer_request, inference_client, ints};
use crate::support::{Answer, Client, EmbeddedServer, FnRuntime, Folder, TestServer, eventually};

const INFER: &str = "/v2/models/m/infer";
const BODY: &str = r#"{"inputs":[{"name":"x","shape":[2],"datatype":"INT32","data":[1,2]}]}"#;

/// The queue position of a disconnected client is free within this time.
const SOON: Duration = Duration::from_secs(20);

/// Gates that let predictions begin and end.
#[derive(Debug, Clone)]
struct Gates {
    begin: Arc<Semaphore>,
    end: Arc<Semaphore>,
    /// Predictions that were requested and have neither ended nor been dropped.
    alive: Arc<AtomicUsize>,
}

impl Gates {
    fn new(begin: usize, end: usize) -> Self {
        Self { begin: Arc::new(Semaphore::new(begin)), end: Arc::new(Semaphore::new(end)), alive: Arc::default() }
    }

    fn runtime(&self) -> FnRuntime {
        let gates = self.clone();
        FnRuntime::with_progress(move |request, progress| {
            gates.alive.fetch_add(1, Ordering::SeqCst);
            let (gates, alive) = (gates.clone(), Alive(Arc::clone(&gates.alive)));
            async move {
                let _alive = alive;
                gates.begin.acquire().await.unwrap().forget();
                progress.begin();
                gates.end.acquire().await.unwrap().forget();
                Ok(InferenceResponse { outputs: request.inputs, ..InferenceResponse::default() })
            }
        })
    }
}

struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(gates: &Gates, change: impl FnOnce(&mut ModelSettings)) -> EmbeddedServer {
    EmbeddedServer::serve_as(gates.runtime(), change).await
}

fn post(client: &Client) -> tokio::task::JoinHandle<Answer> {
    let client = client.clone();
    tokio::task::spawn_blocking(move || client.post(INFER, BODY))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_full_answers_503() {
    let gates = Gates::new(0, usize::MAX >> 4);
    let server = serve(&gates, |settings| settings.parameters.max_queue_requests = Some(2)).await;
    let client = server.client();
    let waiting = [post(&client), post(&client)];
    eventually("two wait", || gates.alive.load(Ordering::SeqCst) == 2).await;
    let refused = post(&client).await.unwrap();
    assert_eq!(
        refused.error(503),
        "the model's queue is full: 2 requests are waiting (`max_queue_requests`); try again later"
    );
    assert_eq!(refused.header("retry-after"), "1");
    let mut grpc = inference_client(server.grpc).await;
    let status = grpc.model_infer(infer_request("m", "INT32", &[1], ints(&[1]))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);

    gates.begin.add_permits(10);
    for answer in waiting {
        answer.await.unwrap().ok();
    }
    post(&client).await.unwrap().ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_bytes_full_answers_503() {
    let gates = Gates::new(0, usize::MAX >> 4);
    let server = serve(&gates, |settings| settings.parameters.max_queue_bytes = 15).await;
    let client = server.client();
    let first = post(&client);
    eventually("one waits", || gates.alive.load(Ordering::SeqCst) == 1).await;
    let message = post(&client).await.unwrap().error(503);
    assert_eq!(
        message,
        "the model's queue is full: with this request, 16 bytes exceed the limit of 15 (`max_queue_bytes`); try again later"
    );
    gates.begin.add_permits(1);
    first.await.unwrap().ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeouts_of_queue_prediction_and_request_have_their_own_settings() {
    let short = Duration::from_millis(60);
    let cases = [
        ("queue_timeout", 503, "`queue_timeout` (0.06 s) exceeded: the model is busy; try again later"),
        ("predict_timeout", 504, "`predict_timeout` (0.06 s) exceeded"),
        ("request_timeout", 504, "`request_timeout` (0.06 s) exceeded"),
    ];
    for (setting, status, message) in cases {
        let gates = Gates::new(usize::from(setting != "queue_timeout"), 0);
        let server = serve(&gates, |settings| {
            let limit = |name| Some(if setting == name { short } else { Duration::from_secs(20) });
            settings.parameters.queue_timeout = limit("queue_timeout");
            settings.parameters.predict_timeout = limit("predict_timeout");
            settings.parameters.request_timeout = limit("request_timeout");
        })
        .await;
        let started = Instant::now();
        assert_eq!(post(&server.client()).await.unwrap().error(status), message);
        assert!((Duration::from_millis(55)..Duration::from_secs(20)).contains(&started.elapsed()));
        assert_eq!(gates.alive.load(Ordering::SeqCst), 0);
        // The slot is free when the server knows that the response has been sent.
        eventually("the slot is free", || server.inference.in_flight() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_timeout_header_limits_the_wait() {
    let gates = Gates::new(0, 0);
    let server = serve(&gates, |_| {}).await;
    let client = server.client();
    let ask = move |timeout: &'static str| {
        let client = client.clone();
        tokio::task::spawn_blocking(move || client.post_with(INFER, &[("request-timeout", timeout)], BODY))
    };
    assert_eq!(ask("0.05").await.unwrap().error(504), "the client's deadline has passed");
    assert_eq!(ask("soon").await.unwrap().error(400), "`request-timeout` is `soon`, expected seconds, such as `0.5`");
    assert_eq!(gates.alive.load(Ordering::SeqCst), 0);
    eventually("the slot is free", || server.inference.in_flight() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_disconnect_frees_its_queue_position() {
    // The client disconnects while waiting for its prediction, during it, and while waiting for a batch.
    for (begin, batched) in [(0, false), (1, false), (0, true)] {
        let gates = Gates::new(begin, 0);
        let server = serve(&gates, |settings| {
            if batched {
                (settings.max_batch_size, settings.max_batch_time) = (8, Duration::from_mins(1));
            }
        })
        .await;
        let _busy = batched.then(|| post(&server.client()));
        let before = usize::from(batched);
        eventually("the runtime is busy", || gates.alive.load(Ordering::SeqCst) == before).await;

        let mut http1 = TcpStream::connect(server.http).unwrap();
        let head = format!("POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n");
        http1.write_all(format!("{head}content-length: {}\r\n\r\n{BODY}", BODY.len()).as_bytes()).unwrap();
        left(&server, before, "HTTP/1", move || drop(http1)).await;

        let stream = tokio::net::TcpStream::connect(server.http).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::post(format!("http://test{INFER}")).header("content-type", "application/json");
        let (_answer, mut body) = sender.send_request(request.body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(BODY.as_bytes()), true).unwrap();
        left(&server, before, "HTTP/2", move || body.send_reset(h2::Reason::CANCEL)).await;
        connection.abort();

        let grpc = Http2::connect(server.grpc).await;
        let message = framed(0, &infer_request("m", "INT32", &[2], ints(&[1, 2])).encode_to_vec());
        let call =
            tokio::spawn(async move { grpc.call("/inference.GRPCInferenceService/ModelInfer", &[], &message).await });
        left(&server, before, "gRPC", move || call.abort()).await;
    }
}

/// Waits until a request arrives, disconnects its client, and checks that its queue position is free within `SOON`.
async fn left(server: &EmbeddedServer, before: usize, transport: &str, leave: impl FnOnce()) {
    eventually("the request comes", || server.inference.in_flight() == before + 1).await;
    leave();
    let started = Instant::now();
    eventually("its place is free", || server.inference.in_flight() == before).await;
    assert!(started.elapsed() < SOON, "{transport}: {:?}", started.elapsed());
}

#[test]
fn server_timing_reports_queue_and_predict() {
    let server = TestServer::start(Folder::new().with_identity("m").settings(&json!({"server_timing": true})));
    let answer = server.post(INFER, BODY);
    answer.ok();
    let parts: Vec<_> = answer.header("server-timing").split(", ").map(|part| part.split(";dur=").collect()).collect();
    let names: Vec<&str> = parts.iter().map(|part: &Vec<&str>| part[0]).collect();
    assert_eq!(names, ["queue", "predict", "total"]);
    assert!(parts.iter().all(|part| part[1].parse::<f64>().unwrap() >= 0.0), "{parts:?}");
    let scrape = server.scrape();
    let labels = r#"{model="m",version="None"}"#;
    for line in [
        format!("model_infer_queue_seconds_count{labels} 1"),
        format!("model_infer_predict_seconds_count{labels} 1"),
        format!("model_infer_waiting{labels} 0"),
        format!("model_infer_in_flight{labels} 0"),
    ] {
        assert!(scrape.text().lines().any(|found| found == line), "{line}:\n{}", scrape.text());
    }
}

/// Answers every request with 16 MiB.
fn long_answer() -> FnRuntime {
    FnRuntime::new(|_| async {
        let zeros = vec![0_u8; 16 << 20];
        let output = Tensor::from_raw("long", Datatype::Uint8, vec![zeros.len()], zeros.into()).unwrap();
        Ok(InferenceResponse { outputs: vec![output], ..InferenceResponse::default() })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_response_keeps_its_slot_until_it_is_read_or_dropped() {
    let server = EmbeddedServer::serve(long_answer()).await;
    let body = r#"{"parameters":{"binary_data_output":true},"inputs":[]}"#;
    let head = format!("POST /v2/models/m/infer HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
    let ask = || async {
        let mut client = tokio::net::TcpStream::connect(server.http).await.unwrap();
        client.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        // The prediction is over when the response begins.
        client.read_exact(&mut [0; 12]).await.unwrap();
        client
    };
    let mut read = ask().await;
    let dropped = ask().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.inference.in_flight(), 2, "nobody has read the responses");
    drop(dropped);
    eventually("the dropped response frees its slot", || server.inference.in_flight() == 1).await;
    let mut buffer = vec![0; 1 << 20];
    let mut received = 0;
    while received < 16 << 20 {
        received += read.read(&mut buffer).await.unwrap();
    }
    eventually("the response that has been read frees its slot", || server.inference.in_flight() == 0).await;
}
