//! The protobuf form of requests and responses (Open Inference protocol, "gRPC"), as `proto/` defines it.
//!
//! Inference messages are read and written without an intermediate form: raw contents, BYTES, and the typed contents of
//! floats are slices of the received message, and large tensors are sent as slices of their own buffer. All other calls use
//! the generated [`messages`].

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
pub use reader::{ProtobufRequest, bytes_to_convert, read_request, read_request_with};
pub use writer::{ResponseEncoder, bytes_to_copy};

/// The code generated from `proto/`: plain structs, and their encoding. `tests/grpc/generated.rs` writes it.
pub mod messages {
    include!("generated/inference.rs");

    /// The messages of the deprecated service.
    pub mod model_repository {
        include!("generated/model_repository.rs");
    }
}

/// The compiled `proto/` as a `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

#[cfg(test)]
mod tests;
