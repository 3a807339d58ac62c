//! Transport security and access control.

mod authority;
mod clients;
mod diagnostics;
mod doctor;
mod keys;
mod lockout;
mod pages;
mod tls;
mod tokens;
