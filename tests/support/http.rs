//! HTTP clients: a well-behaved one, and raw connections for requests that it would never send.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use http::{HeaderMap, Method, Request};
use serde_json::Value;

use super::PATIENCE;

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| unreachable!("{error} in {self:?}"))
    }

    /// Returns a header's value, or an empty string if the header is absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Checks that this is an error in the common format of errors, and returns its message.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.header("content-type"), "application/json");
        assert!(!self.headers.keys().any(|name| name.as_str().starts_with("ce-")), "{self:?}");
        let body = self.json();
        let fields: Vec<_> = body.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["error"], "{body}");
        body["error"].as_str().unwrap().to_owned()
    }

    /// Checks that this is a success and returns its body.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }
}

/// A client that reuses its connections and sends only the headers that HTTP needs.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .accept_encoding("")
            .user_agent("")
            .accept("")
            .allow_non_standard_methods(true)
            .timeout_global(Some(PATIENCE))
            .proxy(None)
            .build();
        Self { agent: config.into(), base: format!("http://{address}") }
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request(&Method::GET, path, &[], b"")
    }

    /// Posts JSON.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.post_with(path, &[("content-type", "application/json")], body)
    }

    #[track_caller]
    pub(crate) fn post_with(&self, path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
        self.request(&Method::POST, path, headers, body.as_ref())
    }

    #[track_caller]
    pub(crate) fn request(&self, method: &Method, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = Request::builder().method(method.clone()).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sent = if *method == Method::POST || *method == Method::PUT {
            self.agent.run(request.body(body).unwrap())
        } else {
            self.agent.run(request.body(()).unwrap())
        };
        let mut response = sent.unwrap_or_else(|error| unreachable!("{method} {path}: {error}"));
        let body = response.body_mut().with_config().limit(u64::MAX).read_to_vec().unwrap();
        Answer { status: response.status().as_u16(), headers: response.headers().clone(), body }
    }
}

/// A raw connection.
pub(crate) struct Connection(TcpStream);

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Writes as much as the server reads: it may answer and close the connection before it has read everything.
    pub(crate) fn write_if_taken(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.write_all(bytes.as_ref());
    }

    /// Waits until the first byte of a response has arrived, without reading it.
    pub(crate) fn wait_for_response(&self) {
        assert_eq!(uninterrupted(|| self.0.peek(&mut [0])).unwrap(), 1);
    }

    /// Closes the write half of the connection.
    pub(crate) fn finish(&mut self) {
        // Fails when the server has closed the connection already.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Starts a request with a body of `length` bytes, and returns once the server is waiting for the body.
    pub(crate) fn start_upload(&mut self, path: &str, length: usize) {
        self.start_upload_with(path, "", length);
    }

    /// Starts a request as `start_upload` does, with further headers, each with its end of line.
    pub(crate) fn start_upload_with(&mut self, path: &str, headers: &str, length: usize) {
        self.write(format!(
            "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
             {headers}content-length: {length}\r\nexpect: 100-continue\r\n\r\n"
        ));
        assert_eq!(self.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    }

    /// Reads one response.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        let head = self.head();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| unreachable!("not an answer: {head:?}"));
        let headers: HeaderMap = lines
            .map(|line| {
                let (name, value) = line.split_once(": ").unwrap();
                (http::HeaderName::try_from(name).unwrap(), http::HeaderValue::try_from(value).unwrap())
            })
            .collect();
        let body = if headers.contains_key("transfer-encoding") {
            self.chunks()
        } else {
            let length = headers.get("content-length").map_or(0, |value| value.to_str().unwrap().parse().unwrap());
            self.exactly(length)
        };
        Answer { status, headers, body }
    }

    pub(crate) fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let size = self.until(b"\r\n");
            let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
            body.extend(self.exactly(size));
            assert_eq!(self.exactly(2), b"\r\n");
            if size == 0 {
                return body;
            }
        }
    }

    /// Reads text until the server closes or resets the connection.
    pub(crate) fn rest(&mut self) -> String {
        String::from_utf8(self.rest_bytes()).unwrap()
    }

    /// Reads bytes until the server closes or resets the connection.
    pub(crate) fn rest_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Err(error) = self.0.read_to_end(&mut bytes) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        bytes
    }

    fn head(&mut self) -> String {
        self.until(b"\r\n\r\n")
    }

    /// Reads up to and including `end`, or everything if the connection ends before.
    fn until(&mut self, end: &[u8]) -> String {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(end) && uninterrupted(|| self.0.read(&mut byte)).unwrap() == 1 {
            bytes.push(byte[0]);
        }
        String::from_utf8(bytes).unwrap()
    }
}

/// Repeats a read that a signal has interrupted, such as that of a child that has ended.
fn uninterrupted<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[test]
fn reads_continue_after_a_signal() {
    let mut results = vec![Ok(1), Err(ErrorKind::Interrupted.into()), Err(ErrorKind::Interrupted.into())];
    assert_eq!(uninterrupted(|| results.pop().unwrap()).unwrap(), 1);
    let reset = || Err::<u8, _>(ErrorKind::ConnectionReset.into());
    assert_eq!(uninterrupted(reset).unwrap_err().kind(), ErrorKind::ConnectionReset);
}
