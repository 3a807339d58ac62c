//! The V2 and V1 protocols over REST: routes, bodies, datatypes, streams and documentation.

mod bad_input;
mod bad_wire;
mod binary;
mod cloud_events;
mod console;
mod datatypes;
mod handlers;
mod headers;
pub(crate) mod openai;
mod openapi;
mod protocol;
mod stream;
mod v1;
mod v1_hostile;
mod validation;
mod wide;
