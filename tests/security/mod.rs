//! Transport security and access control.

mod authority;
mod clients;
mod console;
mod diagnostics;
mod doctor;
mod keys;
mod lockout;
mod pages;
mod polls;
mod streams;
mod tls;
mod tokens;
