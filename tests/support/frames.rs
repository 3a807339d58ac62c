//! A parent of `mlserver score`: its end of the socket, and the memory file.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use mlserver::platform::{memory_file, send_with_file};
use serde_json::{Value, json};

use super::mlserver_command;

pub(crate) const HELLO: u8 = 1;
pub(crate) const LOAD: u8 = 2;
pub(crate) const UNLOAD: u8 = 3;
pub(crate) const PREDICT: u8 = 4;
pub(crate) const CANCEL: u8 = 10;
pub(crate) const PING: u8 = 11;
pub(crate) const STOP: u8 = 12;
pub(crate) const READY: u8 = 64;
pub(crate) const LOADED: u8 = 65;
pub(crate) const DONE: u8 = 66;
pub(crate) const ANSWER: u8 = 67;
pub(crate) const ERROR: u8 = 69;

/// A frame that has been read.
#[derive(Debug)]
pub(crate) struct ReadFrame {
    pub(crate) kind: u8,
    pub(crate) id: u64,
    pub(crate) head: Value,
    pub(crate) tail: Vec<u8>,
}

pub(crate) fn frame(kind: u8, id: u64, head: &str, tail: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0];
    bytes.extend(u32::try_from(head.len()).unwrap().to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes.extend((tail.len() as u64).to_le_bytes());
    bytes.extend(head.as_bytes());
    bytes.extend(tail);
    bytes
}

pub(crate) fn read_frame(socket: &mut UnixStream) -> ReadFrame {
    let mut header = [0; 24];
    socket.read_exact(&mut header).unwrap();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let mut head = vec![0; u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize];
    socket.read_exact(&mut head).unwrap();
    let mut tail = vec![0; usize::try_from(number(&header[16..])).unwrap()];
    socket.read_exact(&mut tail).unwrap();
    let head = serde_json::from_slice(&head).unwrap_or(Value::Null);
    ReadFrame { kind: header[0], id: number(&header[8..16]), head, tail }
}

/// A child `mlserver score`, which is killed when it is dropped.
pub(crate) struct Scorer {
    pub(crate) child: Child,
    pub(crate) socket: UnixStream,
    pub(crate) memory: File,
    pub(crate) version: Value,
    last_id: u64,
}

impl Scorer {
    /// Starts a child that shares so many bytes of memory.
    pub(crate) fn start(bytes: u64) -> Self {
        Self::of(&mut mlserver_command(".", &["score"]), bytes)
    }

    /// Starts a command that runs `mlserver score` in its own process.
    pub(crate) fn of(command: &mut Command, bytes: u64) -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let child = command.stdin(OwnedFd::from(theirs)).stderr(Stdio::piped()).spawn().unwrap();
        // Closes its copy of the other end.
        command.stdin(Stdio::null());
        Self::greet(child, socket, bytes, std::process::id())
    }

    /// Sends `hello` in the name of `parent`, and waits for `ready`.
    pub(crate) fn greet(child: Child, mut socket: UnixStream, bytes: u64, parent: u32) -> Self {
        let memory = memory_file("test", bytes).unwrap();
        let hello = json!({"protocol": 2, "parent": parent, "memory_file": true, "log_level": "info"});
        send_hello(&socket, &frame(HELLO, 0, &hello.to_string(), b""), &memory);
        let ready = read_frame(&mut socket);
        assert_eq!(ready.kind, READY, "{ready:?}");
        Self { child, socket, memory, version: ready.head["version"].clone(), last_id: 0 }
    }

    /// Opens a call without waiting for its end. Returns its id.
    pub(crate) fn open(&mut self, kind: u8, head: &Value, tail: &[u8]) -> u64 {
        self.last_id += 0x101;
        self.socket.write_all(&frame(kind, self.last_id, &head.to_string(), tail)).unwrap();
        self.last_id
    }

    pub(crate) fn read(&mut self) -> ReadFrame {
        read_frame(&mut self.socket)
    }

    /// Returns the final frame of a call.
    pub(crate) fn call(&mut self, kind: u8, head: &Value, tail: &[u8]) -> ReadFrame {
        let id = self.open(kind, head, tail);
        let answer = self.read();
        assert_eq!(answer.id, id, "{answer:?}");
        answer
    }

    /// Loads model 1, and returns the head of `loaded`.
    #[track_caller]
    pub(crate) fn load(&mut self, location: &str, name: Option<&str>) -> Value {
        let loaded = self.call(LOAD, &json!({"model": 1, "location": location, "name": name}), b"");
        assert_eq!(loaded.kind, LOADED, "{loaded:?}");
        loaded.head
    }

    /// Returns the message of a call that fails, after its kind.
    #[track_caller]
    pub(crate) fn error(&mut self, kind: u8, head: &Value) -> String {
        let error = self.call(kind, head, b"");
        assert_eq!(error.kind, ERROR, "{error:?}");
        format!("{}: {}", error.head["kind"].as_str().unwrap(), error.head["message"].as_str().unwrap())
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, offset).unwrap();
    }

    /// Returns the bytes of an output, from the memory file.
    #[track_caller]
    pub(crate) fn output(&self, output: &Value) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(output["size"].as_u64().unwrap()).unwrap()];
        self.memory.read_exact_at(&mut bytes, output["offset"].as_u64().unwrap()).unwrap();
        bytes
    }

    /// Tells the child to stop, and waits until it has.
    pub(crate) fn stop(mut self) {
        self.open(STOP, &json!({}), b"");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Scorer {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send_hello(mut socket: &UnixStream, bytes: &[u8], file: &File) {
    let sent = send_with_file(socket, bytes, file).unwrap();
    socket.write_all(&bytes[sent..]).unwrap();
}
