//! Whether an image serves: it is started, its models are loaded, and samples are sent to them.

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

/// How long models may take to load, and to answer.
const CHECK_TIMEOUT: Duration = Duration::from_mins(10);
/// How long to wait before asking again whether the server is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How much of an answer is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// How many of the container's last lines are shown when it fails.
const LOG_LINES: usize = 40;

/// A request to try a model with.
#[derive(Debug, Clone)]
pub struct CheckSample {
    pub model: String,
    /// The JSON of an inference request.
    pub body: Bytes,
}

/// What an image is tried with.
#[derive(Debug, Clone)]
pub struct ImageCheck {
    pub image: String,
    /// The container's network, the engine's default if none is named.
    pub network: Option<String>,
    /// The port that the server in the image listens on.
    pub port: u16,
    pub samples: Vec<CheckSample>,
}

/// Why an image does not serve.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("the image cannot be run: {reason}")]
    Run { reason: String },
    #[error("the image does not serve: {reason}{}", log_lines(lines))]
    NotReady { reason: String, lines: Vec<String> },
    #[error("model `{model}` does not answer its `request.json`: {reason}{}", log_lines(lines))]
    CheckSample { model: String, reason: String, lines: Vec<String> },
}

fn log_lines(lines: &[String]) -> String {
    lines.iter().flat_map(|line| ["\n", line]).collect()
}

impl DockerEngine {
    /// Runs the image as its own user, waits until it is ready, and sends the samples. The container is removed in any case.
    ///
    /// The engine has to be on this machine: the container's port is published on the loopback interface only.
    ///
    /// # Errors
    ///
    /// Fails with the server's last lines when it ends, is not ready after ten minutes, or does not answer a sample.
    pub async fn check(&self, trial: &ImageCheck) -> Result<(), CheckError> {
        let run = |error| CheckError::Run { reason: error_text(&error) };
        let body = container(trial);
        let created = self.docker.create_container(None::<CreateContainerOptions>, body).await.map_err(run)?;
        let started = self.docker.start_container(&created.id, None::<StartContainerOptions>).await.map_err(run);
        let outcome = match started {
            Ok(()) => self.wait_and_check(&created.id, trial).await,
            Err(error) => Err(error),
        };
        let force = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        let removed = self.docker.remove_container(&created.id, Some(force)).await.map_err(run);
        outcome.and(removed)
    }

    async fn wait_and_check(&self, id: &str, trial: &ImageCheck) -> Result<(), CheckError> {
        let run = |error| CheckError::Run { reason: error_text(&error) };
        let options =
            LogsOptions { follow: true, stdout: true, stderr: true, tail: "all".to_owned(), ..LogsOptions::default() };
        let mut log = ContainerLog {
            stream: Box::pin(self.docker.logs(id, Some(options))),
            lines: VecDeque::new(),
            address: None,
        };
        let end = Instant::now() + CHECK_TIMEOUT;
        let mut reason = "it does not listen".to_owned();
        loop {
            log.read_available().await;
            let inspected = self.docker.inspect_container(id, None::<InspectContainerOptions>).await.map_err(run)?;
            if let Some(code) = exit_code(&inspected) {
                log.read_available().await;
                let reason = format!("it ended with exit code {code}; its last lines:");
                return Err(CheckError::NotReady { reason, lines: log.lines.into() });
            }
            if let Some(address) = address(&inspected, trial).or(log.address) {
                match send(address, Method::GET, "/v2/health/ready", Bytes::new()).await {
                    Ok((200, _)) => return self.send_samples(address, trial, log).await,
                    Ok((_, body)) => reason = body,
                    Err(error) => reason = error,
                }
            }
            if Instant::now() > end {
                let reason = format!("it is not ready after {} s: {reason}", CHECK_TIMEOUT.as_secs());
                return Err(CheckError::NotReady { reason, lines: log.lines.into() });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn send_samples(
        &self,
        address: SocketAddr,
        trial: &ImageCheck,
        mut log: ContainerLog,
    ) -> Result<(), CheckError> {
        for sample in &trial.samples {
            let path = format!("/v2/models/{}/infer", sample.model);
            let asked =
                tokio::time::timeout(CHECK_TIMEOUT, send(address, Method::POST, &path, sample.body.clone())).await;
            let reason = match asked {
                Ok(Ok((200, _))) => continue,
                Ok(Ok((status, body))) => format!("{status}, {body}"),
                Ok(Err(error)) => error,
                Err(_) => format!("no answer after {} s", CHECK_TIMEOUT.as_secs()),
            };
            log.read_available().await;
            return Err(CheckError::CheckSample { model: sample.model.clone(), reason, lines: log.lines.into() });
        }
        Ok(())
    }
}

/// Describes the container: on the host's network it picks a free port, else its port is published on one.
fn container(trial: &ImageCheck) -> ContainerCreateBody {
    let on_host = trial.network.as_deref() == Some("host");
    let port = format!("{}/tcp", trial.port);
    let publish = PortBinding { host_ip: Some(Ipv4Addr::LOCALHOST.to_string()), host_port: None };
    let ports = (!on_host).then(|| HashMap::from([(port.clone(), Some(vec![publish]))]));
    let free = ["MLSERVER_HTTP_PORT=0", "MLSERVER_GRPC_PORT=0", "MLSERVER_METRICS_PORT=0", "MLSERVER_HOST=127.0.0.1"];
    ContainerCreateBody {
        image: Some(trial.image.clone()),
        env: on_host.then(|| free.map(str::to_owned).into()),
        exposed_ports: (!on_host).then(|| vec![port]),
        host_config: Some(HostConfig {
            network_mode: trial.network.clone(),
            port_bindings: ports,
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// Returns the code with which a container has ended, if it has.
fn exit_code(inspected: &ContainerInspectResponse) -> Option<i64> {
    let state = inspected.state.as_ref()?;
    (state.running == Some(false)).then(|| state.exit_code.unwrap_or_default())
}

/// Returns where the container's port is published.
fn address(inspected: &ContainerInspectResponse, trial: &ImageCheck) -> Option<SocketAddr> {
    let ports = inspected.network_settings.as_ref()?.ports.as_ref()?;
    let bindings = ports.get(&format!("{}/tcp", trial.port))?.as_ref()?;
    let port = bindings.iter().find_map(|binding| binding.host_port.as_ref()?.parse().ok())?;
    Some((Ipv4Addr::LOCALHOST, port).into())
}

/// What a container says.
struct ContainerLog {
    stream: std::pin::Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    /// The last lines.
    lines: VecDeque<String>,
    /// What the server says about where it listens.
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

/// Sends a request and returns status and body of the answer, or why there is none.
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
