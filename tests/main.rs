//! Integration tests: a module per subcommand or protocol.

mod trees;
