//! The V2 protocol over gRPC, with clients that know it and connections that do not.

mod calls;
mod health;
mod infer;
mod limits;
mod stream;
mod wire;
