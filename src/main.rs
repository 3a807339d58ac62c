//! The `mlserver` executable.

fn main() {}
