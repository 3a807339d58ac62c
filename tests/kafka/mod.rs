//! The server with a real Kafka broker.

mod harness;
mod infer;
mod security;
mod transport;
