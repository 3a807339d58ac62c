//! The V2 protocol over REST: routes, bodies, datatypes, streams and documentation.

mod bad_input;
mod bad_wire;
mod binary;
mod datatypes;
mod handlers;
mod headers;
mod openapi;
mod protocol;
mod stream;
mod validation;
