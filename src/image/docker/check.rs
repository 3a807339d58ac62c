//! Checks an image: runs it, waits until its models are loaded, and sends them sample requests.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bollard::container::LogOutput;
use bollard::errors::Error as BollardError;
use bollard::models::{ContainerCreateBody, ContainerInspectResponse, HostConfig, PortBinding};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, LogsOptions, RemoveContainerOptions, StartContainerOptions,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::engine::{DockerEngine, error_text};

/// How long models may take to load, and to answer a request.
const CHECK_TIMEOUT: Duration = Duration::from_mins(10);
/// How long the server may take to answer whether it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server that is listening in its container may be unreachable from this machine.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the engine may take to create, start, inspect or remove a container.
const ENGINE_TIMEOUT: Duration = Duration::from_mins(2);
/// How long the rest of a log may take after its container has exited.
const LOG_TIMEOUT: Duration = Duration::from_secs(5);
/// How often to check whether the server is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The limit on the size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// How many lines of the container's log are shown if the check fails, and the limit on the length of each.
const LOG_LINES: usize = 40;
const MAX_LINE_CHARS: usize = 2_000;
/// The label of containers that check an image.
pub const CHECK_LABEL: &str = "mlserver.check";
/// The characters that are percent-encoded in a path segment.
const SEGMENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A sample request for a model.
#[derive(Debug, Clone)]
pub struct CheckSample {
    pub model: String,
    /// `None` for an unversioned model.
    pub version: Option<String>,
    /// The JSON of an inference request.
    pub body: Bytes,
}

/// How to check an image.
#[derive(Debug, Clone)]
pub struct ImageCheck {
    pub image: String,
    /// The network of the container. The engine's default if `None`.
    pub network: Option<String>,
    /// The port that the server in the image listens on.
    pub port: u16,
    /// Arguments behind the image's command.
    pub arguments: Vec<String>,
    pub samples: Vec<CheckSample>,
}

impl ImageCheck {
    fn is_on_host_network(&self) -> bool {
        self.network.as_deref() == Some("host")
    }
}

/// Why an image failed the check.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("cannot run the image: {reason}")]
    Run { reason: String },
    #[error("the image failed to start: {reason}{}", log_lines(lines))]
    NotReady { reason: String, lines: Vec<String> },
    /// `model` is in backticks, with its version.
    #[error("model {model} did not answer its `request.json`: {reason}{}", log_lines(lines))]
    CheckSample { model: String, reason: String, lines: Vec<String> },
    #[error("cannot remove container `{name}`, which checked the image: {reason}")]
    Remove { name: String, reason: String },
    #[error("the check was interrupted")]
    Interrupted,
}

fn log_lines(lines: &[String]) -> String {
    lines.iter().flat_map(|line| ["\n", line]).collect()
}

impl CheckSample {
    /// Returns the path of the model's inference endpoint.
    fn path(&self) -> String {
        let segment = |text: &str| utf8_percent_encode(text, &SEGMENT).to_string();
        let version =
            self.version.as_deref().map_or_else(String::new, |version| format!("/versions/{}", segment(version)));
        format!("/v2/models/{}{version}/infer", segment(&self.model))
    }

    /// Displays the model and its version.
    fn title(&self) -> String {
        let version = self.version.as_ref().map_or_else(String::new, |version| format!(" version `{version}`"));
        format!("`{}`{version}", self.model)
    }
}

/// Waits for an engine's answer, with a timeout. `action` says what it is asked to do.
async fn answer<T>(action: &str, work: impl Future<Output = Result<T, BollardError>>) -> Result<T, CheckError> {
    match timeout(ENGINE_TIMEOUT, work).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(CheckError::Run { reason: error_text(&error) }),
        Err(_) => {
            let reason = format!("the engine did not {action} within {} s", ENGINE_TIMEOUT.as_secs());
            Err(CheckError::Run { reason })
        }
    }
}

impl DockerEngine {
    /// Runs the image as its own user, waits until it is ready, and sends the sample requests. Always removes the container,
    /// also if `stop` is cancelled.
    ///
    /// The engine must be on this machine: the container's port is only published on the loopback interface.
    ///
    /// # Errors
    ///
    /// Fails with the last lines of the server's log if it exits, is not ready after ten minutes, does not answer a sample request, or
    /// is listening in the container but cannot be reached from this machine.
    pub async fn check(&self, check: &ImageCheck, stop: &CancellationToken) -> Result<(), CheckError> {
        let name = format!("mlserver-check-{}", uuid::Uuid::new_v4().simple());
        let options = CreateContainerOptions { name: Some(name.clone()), ..CreateContainerOptions::default() };
        let command = self.command(check).await?;
        // Not cancelled: the engine creates the container even if nobody waits for it.
        let created =
            answer("create the container", self.docker.create_container(Some(options), container(check, command)))
                .await;
        let outcome = match created {
            Ok(_) => {
                let checked = stop.run_until_cancelled(self.start_and_check(&name, check)).await;
                checked.unwrap_or(Err(CheckError::Interrupted))
            }
            Err(error) => Err(error),
        };
        match (outcome, self.remove(name).await) {
            // What is left behind matters more than that the check was stopped.
            (Ok(()) | Err(CheckError::Interrupted), Err(error)) => Err(error),
            (outcome, _) => outcome,
        }
    }

    /// Returns the command of the container; `None` for that of the image.
    async fn command(&self, check: &ImageCheck) -> Result<Option<Vec<String>>, CheckError> {
        if check.arguments.is_empty() {
            return Ok(None);
        }
        let inspected = answer("inspect the image", self.docker.inspect_image(&check.image)).await?;
        let command = inspected.config.and_then(|config| config.cmd).unwrap_or_default();
        Ok(Some([&command[..], &check.arguments].concat()))
    }

    /// Removes a container if it exists, running or not.
    async fn remove(&self, name: String) -> Result<(), CheckError> {
        let force = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        match timeout(ENGINE_TIMEOUT, self.docker.remove_container(&name, Some(force))).await {
            Ok(Ok(()) | Err(BollardError::DockerResponseServerError { status_code: 404, .. })) => Ok(()),
            Ok(Err(error)) => Err(CheckError::Remove { name, reason: error_text(&error) }),
            Err(_) => {
                let reason = format!("the engine did not answer within {} s", ENGINE_TIMEOUT.as_secs());
                Err(CheckError::Remove { name, reason })
            }
        }
    }

    async fn start_and_check(&self, name: &str, check: &ImageCheck) -> Result<(), CheckError> {
        answer("start the container", self.docker.start_container(name, None::<StartContainerOptions>)).await?;
        let options =
            LogsOptions { follow: true, stdout: true, stderr: true, tail: "all".to_owned(), ..LogsOptions::default() };
        let mut log = ContainerLog::follow(self.docker.logs(name, Some(options)).boxed());
        let end = Instant::now() + CHECK_TIMEOUT;
        let mut reason = "it is not listening".to_owned();
        let mut reached = Instant::now();
        loop {
            let inspecting = self.docker.inspect_container(name, None::<InspectContainerOptions>);
            let inspected = answer("inspect the container", inspecting).await?;
            if let Some(code) = exit_code(&inspected) {
                log.finish().await;
                let reason = format!("it exited with code {code}; the last lines of its log:");
                return Err(CheckError::NotReady { reason, lines: log.lines() });
            }
            let announced = log.address();
            let address = if check.is_on_host_network() { announced } else { published_address(&inspected, check) };
            let mut is_reachable = true;
            if let Some(address) = address {
                match timeout(READY_TIMEOUT, send(address, Method::GET, "/v2/health/ready", Bytes::new())).await {
                    Ok(Ok((200, _))) => return send_samples(address, check, &log).await,
                    Ok(Ok((_, body))) => reason = body,
                    Ok(Err(error)) => {
                        reason = error;
                        is_reachable = announced.is_none();
                    }
                    Err(_) => reason = format!("no answer within {} s", READY_TIMEOUT.as_secs()),
                }
            } else if announced.is_some() {
                reason = format!("the engine has not published port {}", check.port);
                is_reachable = false;
            }
            if is_reachable {
                reached = Instant::now();
            } else if reached.elapsed() > REACH_TIMEOUT {
                let reason = format!(
                    "its server is listening in the container, but cannot be reached from this machine: {reason}; if the \
                     engine's network does not connect them, use `--network host`; the last lines of its log:"
                );
                return Err(CheckError::NotReady { reason, lines: log.lines() });
            }
            if Instant::now() > end {
                let reason = format!("it was not ready after {} s: {reason}", CHECK_TIMEOUT.as_secs());
                return Err(CheckError::NotReady { reason, lines: log.lines() });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

async fn send_samples(address: SocketAddr, check: &ImageCheck, log: &ContainerLog) -> Result<(), CheckError> {
    for sample in &check.samples {
        let path = sample.path();
        let sending = send(address, Method::POST, &path, sample.body.clone());
        let reason = match timeout(CHECK_TIMEOUT, sending).await {
            Ok(Ok((200, _))) => continue,
            Ok(Ok((status, body))) => format!("status {status}: {body}"),
            Ok(Err(error)) => error,
            Err(_) => format!("no answer after {} s", CHECK_TIMEOUT.as_secs()),
        };
        // What the server logs about the request follows its response.
        tokio::time::sleep(POLL_INTERVAL).await;
        return Err(CheckError::CheckSample { model: sample.title(), reason, lines: log.lines() });
    }
    Ok(())
}

/// Describes the container. On the host's network the server picks a free port; otherwise its port is published on one.
fn container(check: &ImageCheck, command: Option<Vec<String>>) -> ContainerCreateBody {
    let on_host = check.is_on_host_network();
    let port = format!("{}/tcp", check.port);
    let publish = PortBinding { host_ip: Some(Ipv4Addr::LOCALHOST.to_string()), host_port: None };
    let ports = (!on_host).then(|| HashMap::from([(port.clone(), Some(vec![publish]))]));
    let free = ["MLSERVER_HTTP_PORT=0", "MLSERVER_GRPC_PORT=0", "MLSERVER_METRICS_PORT=0", "MLSERVER_HOST=127.0.0.1"];
    ContainerCreateBody {
        image: Some(check.image.clone()),
        cmd: command,
        env: on_host.then(|| free.map(str::to_owned).into()),
        exposed_ports: (!on_host).then(|| vec![port]),
        labels: Some(HashMap::from([(CHECK_LABEL.to_owned(), check.image.clone())])),
        host_config: Some(HostConfig {
            network_mode: check.network.clone(),
            port_bindings: ports,
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// Returns the exit code of a container, or `None` if it is running.
fn exit_code(inspected: &ContainerInspectResponse) -> Option<i64> {
    let state = inspected.state.as_ref()?;
    (state.running == Some(false)).then(|| state.exit_code.unwrap_or_default())
}

/// Returns the address at which the container's port is published.
fn published_address(inspected: &ContainerInspectResponse, check: &ImageCheck) -> Option<SocketAddr> {
    let ports = inspected.network_settings.as_ref()?.ports.as_ref()?;
    let bindings = ports.get(&format!("{}/tcp", check.port))?.as_ref()?;
    let port = bindings.iter().find_map(|binding| binding.host_port.as_ref()?.parse().ok())?;
    Some((Ipv4Addr::LOCALHOST, port).into())
}

/// The log of a container, which a task reads, however fast it grows. Dropping it ends the task.
struct ContainerLog {
    tail: Arc<Mutex<LogTail>>,
    reader: JoinHandle<()>,
}

/// The end of a log.
#[derive(Debug, Default)]
struct LogTail {
    /// The last lines.
    lines: VecDeque<String>,
    /// The address that the server has announced in the log.
    address: Option<SocketAddr>,
}

impl ContainerLog {
    fn follow(mut stream: impl Stream<Item = Result<LogOutput, BollardError>> + Send + Unpin + 'static) -> Self {
        let tail = Arc::<Mutex<LogTail>>::default();
        let shared = Arc::clone(&tail);
        let reader = tokio::spawn(async move {
            while let Some(Ok(output)) = stream.next().await {
                let text = output.into_bytes();
                shared.lock().unwrap_or_else(PoisonError::into_inner).add(&String::from_utf8_lossy(&text));
            }
        });
        Self { tail, reader }
    }

    /// Waits for the rest of the log of a container that has exited.
    async fn finish(&mut self) {
        // What has been read by then is enough.
        let _ = timeout(LOG_TIMEOUT, &mut self.reader).await;
    }

    fn lines(&self) -> Vec<String> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).lines.iter().cloned().collect()
    }

    fn address(&self) -> Option<SocketAddr> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).address
    }
}

impl Drop for ContainerLog {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl LogTail {
    fn add(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((_, address)) = line.split_once("HTTP server running on http://") {
                let end = address.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').unwrap_or(address.len());
                self.address = address[..end].parse().ok();
            }
            if self.lines.len() == LOG_LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(line.chars().take(MAX_LINE_CHARS).collect());
        }
    }
}

/// Sends a request and returns the status and the body of the response, or why there is none.
async fn send(address: SocketAddr, method: Method, path: &str, body: Bytes) -> Result<(u16, String), String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(|error| error.to_string())?;
    let request = Request::builder().method(method).uri(path).header("host", address.to_string());
    let request =
        request.header("content-type", "application/json").body(Full::new(body)).map_err(|e| e.to_string())?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let body =
            Limited::new(answer.into_body(), MAX_RESPONSE_BYTES).collect().await.map_err(|error| error.to_string())?;
        Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
    };
    tokio::select! {
        outcome = exchange => outcome,
        ended = connection => Err(ended.map_or_else(|error| error.to_string(), |()| "the connection was closed".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scripted::ScriptedEngine;
    use super::*;

    #[test]
    fn check_sample_path_is_encoded_and_names_the_version() {
        let sample = |model: &str, version: Option<&str>| CheckSample {
            model: model.to_owned(),
            version: version.map(str::to_owned),
            body: Bytes::new(),
        };
        assert_eq!(sample("my model/ä", None).path(), "/v2/models/my%20model%2F%C3%A4/infer");
        assert_eq!(sample("churn", Some("v1.0 b")).path(), "/v2/models/churn/versions/v1.0%20b/infer");
        assert!(sample("a\nb?#", Some("%")).path().parse::<http::Uri>().is_ok());
        assert_eq!(sample("churn", Some("v1")).title(), "`churn` version `v1`");
    }

    /// A container that logs without a pause must not keep the check from looking at it.
    #[tokio::test]
    async fn container_log_that_never_pauses_is_read_in_the_background() {
        let endless = futures_util::stream::unfold(0_u64, |line| async move {
            tokio::task::yield_now().await;
            let text = if line == 100 {
                "HTTP server running on http://127.0.0.1:81/\n".to_owned()
            } else {
                format!("line {line}\n")
            };
            Some((Ok(LogOutput::StdOut { message: text.into() }), line + 1))
        });
        let mut log = ContainerLog::follow(endless.boxed());
        while log.address().is_none() || log.lines().len() < LOG_LINES {
            tokio::task::yield_now().await;
        }
        assert_eq!(log.address(), Some((Ipv4Addr::LOCALHOST, 81).into()));
        assert_eq!(log.lines().len(), LOG_LINES);
        log.reader.abort();
        log.finish().await;
    }

    /// Checks an image with a scripted engine.
    async fn scripted_check(
        network: &str,
        stop: &CancellationToken,
        removal_status: u16,
    ) -> (Arc<ScriptedEngine>, Result<(), CheckError>) {
        let folder = tempfile::tempdir().unwrap();
        let engine = ScriptedEngine::new(removal_status).await;
        let variables = HashMap::from([("DOCKER_HOST".to_owned(), engine.start(&folder.path().join("engine.sock")))]);
        let docker = DockerEngine::connect(&variables).await.unwrap();
        let check = ImageCheck {
            image: "m:1".to_owned(),
            network: Some(network.to_owned()),
            port: 8080,
            arguments: Vec::new(),
            samples: Vec::new(),
        };
        let outcome = docker.check(&check, stop).await;
        (engine, outcome)
    }

    /// Takes as long as a request for readiness may.
    #[tokio::test]
    async fn check_silent_server_and_chatty_log_do_not_hang() {
        let (engine, outcome) = scripted_check("host", &CancellationToken::new(), 204).await;
        let error = outcome.unwrap_err().to_string();
        assert!(
            error.starts_with("the image failed to start: it exited with code 7; the last lines of its log:\nHTTP"),
            "{error}"
        );
        let removed = engine.removed();
        assert!(removed.len() == 1 && removed[0].starts_with("mlserver-check-"), "{removed:?}");
    }

    /// Takes as long as a server may be unreachable.
    #[tokio::test]
    async fn check_of_a_server_without_a_way_to_it_says_so() {
        let (engine, outcome) = scripted_check("bridge", &CancellationToken::new(), 204).await;
        let error = outcome.unwrap_err().to_string();
        let expected = "cannot be reached from this machine: the engine has not published port 8080; if the";
        assert!(error.contains(expected) && error.contains("`--network host`"), "{error}");
        assert!(error.contains("\nHTTP server running on"), "{error}");
        assert_eq!(engine.removed().len(), 1);
    }

    #[tokio::test]
    async fn check_that_is_stopped_removes_its_container() {
        let stop = CancellationToken::new();
        stop.cancel();
        let (engine, outcome) = scripted_check("host", &stop, 204).await;
        let error = outcome.unwrap_err();
        assert!(matches!(error, CheckError::Interrupted), "{error}");
        assert_eq!(engine.removed().len(), 1);
    }

    #[tokio::test]
    async fn check_that_is_stopped_reports_a_container_that_cannot_be_removed() {
        let stop = CancellationToken::new();
        stop.cancel();
        let error = scripted_check("host", &stop, 500).await.1.unwrap_err().to_string();
        assert!(error.starts_with("cannot remove container `mlserver-check-"), "{error}");
        assert!(error.ends_with("device busy"), "{error}");
    }
}
