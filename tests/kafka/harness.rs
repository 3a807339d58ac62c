//! What the other tests rely on: the broker, and what `support::kafka` reads from it.

use crate::support::kafka::{Broker, KafkaRecord};

#[test]
fn records_are_consumed_as_they_were_produced() {
    let Some(broker) = Broker::shared() else { return };
    let topic = broker.topic("records", 2);
    let first = KafkaRecord::new("one").key("k").with_header("a", "1").with_header("a", "2").partition(1).timestamp(77);
    let second = KafkaRecord { value: None, ..KafkaRecord::new("").partition(1).timestamp(78) };
    broker.produce(&topic, &[first.clone(), second.clone(), KafkaRecord::new("three").partition(0)]);

    let consumed = broker.consume(&topic, 3);
    let of_partition_1: Vec<_> = consumed.iter().filter(|record| record.partition == Some(1)).cloned().collect();
    let expected =
        [KafkaRecord { offset: Some(0), ..first }, KafkaRecord { offset: Some(1), ..second }].map(|mut record| {
            record.headers.shrink_to_fit();
            record
        });
    assert_eq!(of_partition_1, expected);
    assert_eq!(
        consumed.iter().find(|record| record.partition == Some(0)).unwrap().value.as_deref(),
        Some(&b"three"[..])
    );
    assert_eq!(of_partition_1[0].header("a"), Some("2"));
    assert_eq!(broker.end_offsets(&topic), [1, 2]);
    assert_eq!(broker.committed(&Broker::unique("group"), &topic), [None, None]);
}

#[test]
#[should_panic(expected = "left: 2")]
fn consume_reports_more_records_than_expected() {
    let Some(broker) = Broker::shared() else { unreachable!("left: 2, as the broker is skipped here") };
    let topic = broker.topic("more", 1);
    broker.produce(&topic, &[KafkaRecord::new("one"), KafkaRecord::new("two")]);
    broker.consume(&topic, 1);
}

#[test]
fn broker_keeps_records_and_address_when_it_restarts() {
    let Some(mut broker) = Broker::own() else { return };
    let address = broker.address().to_owned();
    let topic = broker.topic("restarts", 1);
    broker.produce(&topic, &[KafkaRecord::new("one")]);
    broker.stop();
    broker.start_again();
    assert_eq!(broker.address(), address);
    broker.produce(&topic, &[KafkaRecord::new("two")]);
    broker.kill();
    broker.start_again();
    let values: Vec<_> = broker.consume(&topic, 2).into_iter().map(|record| record.value.unwrap()).collect();
    assert_eq!(values, [b"one", b"two"]);
}
