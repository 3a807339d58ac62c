//! The V2 protocol over gRPC, with generated clients and with raw connections.

mod calls;
mod generated;
mod health;
mod infer;
mod limits;
mod stream;
mod wire;
