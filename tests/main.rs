//! Integration tests: a module per subcommand or protocol.
#![expect(clippy::unwrap_used, reason = "a helper that fails should fail its test")]

mod config;
