//! The server with a real Kafka broker.

mod harness;
mod infer;
mod kills;
mod security;
mod transport;
