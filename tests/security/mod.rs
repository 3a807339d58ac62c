//! Transport security and access control.

mod authority;
mod keys;
mod tls;
