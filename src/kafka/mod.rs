//! Connections to Kafka, on librdkafka: what the server's transport and `mlserver infer` share.
//!
//! librdkafka speaks to every broker since Kafka 0.8, knows both group protocols and transactions, and its properties are what
//! users' configurations are written in. Names and values of properties are those of its
//! [reference](https://github.com/confluentinc/librdkafka/blob/v2.12.1/CONFIGURATION.md).

mod connection;

use std::time::Duration;

pub use connection::{ConnectionError, KafkaConnection};

/// Waits on a thread that only serves librdkafka.
#[expect(clippy::disallowed_methods, reason = "the thread serves nothing else")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
