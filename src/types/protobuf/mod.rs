//! The protobuf form of requests and responses (Open Inference protocol, "gRPC"), as `proto/` defines it.
//!
//! The messages of inference are read and written here without an intermediate form: raw contents, BYTES, and the typed
//! contents of floats are slices of the received message, and large tensors leave as slices of their own buffer. For all
//! other calls there are the generated [`messages`].

mod client;
mod contents;
mod error;
mod parameters;
mod reader;
mod wire;
mod writer;

pub use client::{read_response, write_request};
pub use error::ReadError;
pub use parameters::to_map as parameters_to_map;
pub use reader::{ProtobufRequest, conversion_effort, read_request};
pub use writer::{ResponseEncoder, writing_effort};

/// What the compiler of `proto/` made of it: plain structs, and their encoding.
pub mod messages {
    include!(concat!(env!("OUT_DIR"), "/messages/inference.rs"));

    /// The deprecated service's own messages.
    pub mod model_repository {
        include!(concat!(env!("OUT_DIR"), "/messages/inference.model_repository.rs"));
    }
}

/// The compiled `proto/`, a `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg(test)]
mod tests;
