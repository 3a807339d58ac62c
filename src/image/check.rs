//! Checks an image: runs it, waits until its models are loaded, and sends them sample requests.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bollard::container::LogOutput;
use bollard::models::{ContainerCreateBody, ContainerInspectResponse, HostConfig, PortBinding};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, LogsOptions, RemoveContainerOptions, StartContainerOptions,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::engine::{DockerEngine, error_text};

/// How long models may take to load, and to answer a request.
const CHECK_TIMEOUT: Duration = Duration::from_mins(10);
/// How often to check whether the server is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The limit on the size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// How many lines of the container's log are shown if the check fails.
const LOG_LINES: usize = 40;

/// A sample request for a model.
#[derive(Debug, Clone)]
pub struct CheckSample {
    pub model: String,
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
    pub samples: Vec<CheckSample>,
}

/// Why an image failed the check.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("cannot run the image: {reason}")]
    Run { reason: String },
    #[error("the image failed to start: {reason}{}", log_lines(lines))]
    NotReady { reason: String, lines: Vec<String> },
    #[error("model `{model}` did not answer its `request.json`: {reason}{}", log_lines(lines))]
    CheckSample { model: String, reason: String, lines: Vec<String> },
}

fn log_lines(lines: &[String]) -> String {
    lines.iter().flat_map(|line| ["\n", line]).collect()
}

impl DockerEngine {
    /// Runs the image as its own user, waits until it is ready, and sends the sample requests. Always removes the container.
    ///
    /// The engine must be on this machine: the container's port is only published on the loopback interface.
    ///
    /// # Errors
    ///
    /// Fails with the last lines of the server's log if it exits, is not ready after ten minutes, or does not answer a sample request.
    pub async fn check(&self, check: &ImageCheck) -> Result<(), CheckError> {
        let run = |error| CheckError::Run { reason: error_text(&error) };
        let body = container(check);
        let created = self.docker.create_container(None::<CreateContainerOptions>, body).await.map_err(run)?;
        let started = self.docker.start_container(&created.id, None::<StartContainerOptions>).await.map_err(run);
        let outcome = match started {
            Ok(()) => self.wait_and_check(&created.id, check).await,
            Err(error) => Err(error),
        };
        let force = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        let removed = self.docker.remove_container(&created.id, Some(force)).await.map_err(run);
        outcome.and(removed)
    }

    async fn wait_and_check(&self, id: &str, check: &ImageCheck) -> Result<(), CheckError> {
        let run = |error| CheckError::Run { reason: error_text(&error) };
        let options =
            LogsOptions { follow: true, stdout: true, stderr: true, tail: "all".to_owned(), ..LogsOptions::default() };
        let mut log = ContainerLog {
            stream: Box::pin(self.docker.logs(id, Some(options))),
            lines: VecDeque::new(),
            address: None,
        };
        let end = Instant::now() + CHECK_TIMEOUT;
        let mut reason = "it is not listening".to_owned();
        loop {
            log.read_available().await;
            let inspected = self.docker.inspect_container(id, None::<InspectContainerOptions>).await.map_err(run)?;
            if let Some(code) = exit_code(&inspected) {
                log.read_available().await;
                let reason = format!("it exited with code {code}; the last lines of its log:");
                return Err(CheckError::NotReady { reason, lines: log.lines.into() });
            }
            if let Some(address) = address(&inspected, check).or(log.address) {
                match send(address, Method::GET, "/v2/health/ready", Bytes::new()).await {
                    Ok((200, _)) => return self.send_samples(address, check, log).await,
                    Ok((_, body)) => reason = body,
                    Err(error) => reason = error,
                }
            }
            if Instant::now() > end {
                let reason = format!("it was not ready after {} s: {reason}", CHECK_TIMEOUT.as_secs());
                return Err(CheckError::NotReady { reason, lines: log.lines.into() });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn send_samples(
        &self,
        address: SocketAddr,
        check: &ImageCheck,
        mut log: ContainerLog,
    ) -> Result<(), CheckError> {
        for sample in &check.samples {
            let path = format!("/v2/models/{}/infer", sample.model);
            let answered =
                tokio::time::timeout(CHECK_TIMEOUT, send(address, Method::POST, &path, sample.body.clone())).await;
            let reason = match answered {
                Ok(Ok((200, _))) => continue,
                Ok(Ok((status, body))) => format!("status {status}: {body}"),
                Ok(Err(error)) => error,
                Err(_) => format!("no answer after {} s", CHECK_TIMEOUT.as_secs()),
            };
            log.read_available().await;
            return Err(CheckError::CheckSample { model: sample.model.clone(), reason, lines: log.lines.into() });
        }
        Ok(())
    }
}

/// Describes the container. On the host's network the server picks a free port; otherwise its port is published on one.
fn container(check: &ImageCheck) -> ContainerCreateBody {
    let on_host = check.network.as_deref() == Some("host");
    let port = format!("{}/tcp", check.port);
    let publish = PortBinding { host_ip: Some(Ipv4Addr::LOCALHOST.to_string()), host_port: None };
    let ports = (!on_host).then(|| HashMap::from([(port.clone(), Some(vec![publish]))]));
    let free = ["MLSERVER_HTTP_PORT=0", "MLSERVER_GRPC_PORT=0", "MLSERVER_METRICS_PORT=0", "MLSERVER_HOST=127.0.0.1"];
    ContainerCreateBody {
        image: Some(check.image.clone()),
        env: on_host.then(|| free.map(str::to_owned).into()),
        exposed_ports: (!on_host).then(|| vec![port]),
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
fn address(inspected: &ContainerInspectResponse, check: &ImageCheck) -> Option<SocketAddr> {
    let ports = inspected.network_settings.as_ref()?.ports.as_ref()?;
    let bindings = ports.get(&format!("{}/tcp", check.port))?.as_ref()?;
    let port = bindings.iter().find_map(|binding| binding.host_port.as_ref()?.parse().ok())?;
    Some((Ipv4Addr::LOCALHOST, port).into())
}

/// The log of a container.
struct ContainerLog {
    stream: std::pin::Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    /// The last lines.
    lines: VecDeque<String>,
    /// The address that the server has announced in the log.
    address: Option<SocketAddr>,
}

impl ContainerLog {
    async fn read_available(&mut self) {
        while let Ok(Some(Ok(output))) = tokio::time::timeout(POLL_INTERVAL, self.stream.next()).await {
            for line in String::from_utf8_lossy(&output.into_bytes()).lines() {
                if let Some((_, address)) = line.split_once("HTTP server running on http://") {
                    let end =
                        address.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').unwrap_or(address.len());
                    self.address = address[..end].parse().ok();
                }
                if self.lines.len() == LOG_LINES {
                    self.lines.pop_front();
                }
                self.lines.push_back(line.to_owned());
            }
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
