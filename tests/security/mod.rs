//! Transport security and access control.

mod authority;
mod tls;
