//! Server and model settings: where each value may come from, and which source wins.
