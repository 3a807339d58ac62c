//! An HTTP/1.1 server whose responses the test scripts, for behavior that is rare in a real server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::repository_path;

/// A request as it was received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// How many requests came before it.
    pub(crate) number: usize,
    pub(crate) path: String,
    /// Names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// The scripted response to a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Status, a header line or an empty string, and body.
    Answer(u16, &'static str, String),
    /// Status, header lines and body.
    Bytes(u16, Vec<String>, Vec<u8>),
    /// The server closes the connection.
    CloseConnection,
}

/// A server that answers until the test ends.
pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    connections: Arc<AtomicUsize>,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }

    /// Returns all numbers of the first input.
    pub(crate) fn numbers(&self) -> Vec<i64> {
        let body = self.json();
        body["inputs"][0]["data"].as_array().unwrap().iter().map(|value| value.as_i64().unwrap()).collect()
    }

    /// Answers as a model that returns its first input.
    pub(crate) fn echo(&self) -> Reply {
        let input = &self.json()["inputs"][0];
        let output =
            json!({"name": "y", "shape": input["shape"], "datatype": input["datatype"], "data": input["data"]});
        Reply::Answer(200, "", json!({"model_name": "m", "id": self.json()["id"], "outputs": [output]}).to_string())
    }
}

impl Reply {
    pub(crate) fn error(status: u16, message: &str) -> Self {
        Self::Answer(status, "", json!({"error": message}).to_string())
    }
}

impl ScriptedServer {
    pub(crate) fn serve(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::serve_at(TcpListener::bind("127.0.0.1:0").unwrap(), reply)
    }

    /// Serves at an address that is bound already.
    pub(crate) fn serve_at(listener: TcpListener, reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(listener, reply, None)
    }

    /// Serves with the certificate in `tests/fixtures/tls`.
    pub(crate) fn serve_tls(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::start(listener, reply, Some(tls_config(WebPkiClientVerifier::no_client_auth(), &fixtures())))
    }

    /// Serves with the certificate `server.pem` and the key `server.key` in a folder.
    pub(crate) fn serve_tls_of(folder: &Path, reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let files = (folder.join("server.pem"), folder.join("server.key"));
        Self::start(listener, reply, Some(tls_config(WebPkiClientVerifier::no_client_auth(), &files)))
    }

    /// Serves with the certificate in `tests/fixtures/tls`, and requires that clients present the same one.
    pub(crate) fn serve_mutual_tls(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(fixtures().0).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::start(listener, reply, Some(tls_config(verifier, &fixtures())))
    }

    fn start(
        listener: TcpListener,
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (all, reply, count) = (Arc::clone(&received), Arc::new(reply), Arc::new(AtomicUsize::new(0)));
        let connections: Arc<AtomicUsize> = Arc::default();
        let opened = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming() {
                opened.fetch_add(1, Ordering::SeqCst);
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                let (all, reply, count, tls) = (Arc::clone(&all), Arc::clone(&reply), Arc::clone(&count), tls.clone());
                thread::spawn(move || match tls {
                    None => connection(stream, &*reply, &all, &count),
                    Some(config) => {
                        let connection_state = ServerConnection::new(config).unwrap();
                        connection(StreamOwned::new(connection_state, stream), &*reply, &all, &count);
                    }
                });
            }
        });
        Self { address, received, connections }
    }

    /// Returns how many connections have been accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the requests received so far, in order of arrival.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

/// Returns the files of a certificate and its key.
fn fixtures() -> (PathBuf, PathBuf) {
    (repository_path("tests/fixtures/tls/certificate.pem"), repository_path("tests/fixtures/tls/key.pem"))
}

fn tls_config(verifier: Arc<dyn ClientCertVerifier>, (certificate, key): &(PathBuf, PathBuf)) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap())
}

fn connection(
    stream: impl Read + Write,
    reply: &dyn Fn(&Received) -> Reply,
    all: &Mutex<Vec<Received>>,
    count: &AtomicUsize,
) {
    let mut stream = BufReader::new(stream);
    while let Some(mut received) = read(&mut stream) {
        received.number = count.fetch_add(1, Ordering::SeqCst);
        all.lock().unwrap().push(received.clone());
        let (status, headers, body) = match reply(&received) {
            Reply::Answer(status, "", body) => (status, Vec::new(), body.into_bytes()),
            Reply::Answer(status, header, body) => (status, vec![header.to_owned()], body.into_bytes()),
            Reply::Bytes(status, headers, body) => (status, headers, body),
            Reply::CloseConnection => return,
        };
        let headers = headers.iter().flat_map(|header| [header.as_str(), "\r\n"]).collect::<String>();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n"
        );
        let response = [head.into_bytes(), body].concat();
        if stream.get_mut().write_all(&response).and_then(|()| stream.get_mut().flush()).is_err() {
            return;
        }
    }
}

/// Reads a request; `None` if the client has closed the connection.
fn read(stream: &mut impl BufRead) -> Option<Received> {
    let mut line = String::new();
    let mut next = |stream: &mut dyn BufRead| {
        line.clear();
        stream.read_line(&mut line).ok().filter(|&length| length > 0)?;
        Some(line.trim_end().to_owned())
    };
    let path = next(stream)?.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let header = next(stream)?;
        let Some((name, value)) = header.split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Received { number: 0, path, headers, body })
}
