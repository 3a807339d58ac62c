//! Opens topics, if this executable has the feature `kafka`.

use std::sync::Arc;

#[cfg(feature = "kafka")]
use super::kafka::{TopicReader, TopicWriter};
use super::topic::{OpenTopic, PartitionOffsets, RecordWriter, TopicAddress, TopicError, TopicOptions};
use crate::remote::Observer;

/// Opens a topic for reading: from the offsets that the group has committed, or from `answered` if that is further on.
#[cfg(feature = "kafka")]
pub(super) fn reader(
    address: &TopicAddress,
    options: &TopicOptions,
    answered: &PartitionOffsets,
    observer: &Arc<dyn Observer>,
) -> Result<OpenTopic, TopicError> {
    TopicReader::open(address, options, answered, observer)
}

#[cfg(not(feature = "kafka"))]
pub(super) fn reader(
    _: &TopicAddress,
    _: &TopicOptions,
    _: &PartitionOffsets,
    _: &Arc<dyn Observer>,
) -> Result<OpenTopic, TopicError> {
    Err(TopicError::WithoutKafka)
}

/// Opens a topic for writing.
#[cfg(feature = "kafka")]
pub(super) fn writer(
    address: &TopicAddress,
    options: &TopicOptions,
    observer: Arc<dyn Observer>,
) -> Result<Box<dyn RecordWriter>, TopicError> {
    Ok(Box::new(TopicWriter::open(address, options, observer)?))
}

#[cfg(not(feature = "kafka"))]
pub(super) fn writer(
    _: &TopicAddress,
    _: &TopicOptions,
    _: Arc<dyn Observer>,
) -> Result<Box<dyn RecordWriter>, TopicError> {
    Err(TopicError::WithoutKafka)
}
