//! The listener of Kafka.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::parts::ServerParts;
use crate::server::Listener;
#[cfg(feature = "kafka")]
use crate::server::{
    DrainStage, ForwardedHeaders,
    kafka::{KafkaMetrics, KafkaOptions, KafkaServer, connection},
};
use crate::settings::Settings;
use crate::telemetry::metrics::Registry;

/// Creates no listener: [`check`] has failed if Kafka is enabled.
///
/// # Errors
///
/// Never fails.
#[cfg(not(feature = "kafka"))]
#[expect(clippy::unnecessary_wraps, reason = "it may fail with the feature")]
pub(super) fn listener(
    _: &Settings,
    _: &ServerParts,
    _: Arc<AtomicBool>,
    _: &mut Registry,
) -> anyhow::Result<Option<Listener>> {
    Ok(None)
}

/// Creates the consumer of requests, if Kafka is enabled. `joined` is true while it is a member of its group.
///
/// # Errors
///
/// Fails if librdkafka rejects a property.
#[cfg(feature = "kafka")]
pub(super) fn listener(
    settings: &Settings,
    parts: &ServerParts,
    joined: Arc<AtomicBool>,
    metrics: &mut Registry,
) -> anyhow::Result<Option<Listener>> {
    if !settings.kafka.enabled {
        return Ok(None);
    }
    let options = KafkaOptions {
        settings: settings.kafka.clone(),
        max_requests: settings.limits.max_in_flight,
        server_name: settings.server_name.clone(),
        forward_headers: ForwardedHeaders::of(&settings.access, &settings.tls)?,
        non_finite: settings.non_finite_json,
    };
    let metrics = KafkaMetrics::register(metrics);
    let announcement = format!("Kafka server consuming messages from {}.", settings.kafka.servers);
    let server = KafkaServer::new(parts.inference.clone(), parts.compute.clone(), metrics, joined, options)?;
    let serve = move |stop| server.serve(stop);
    Ok(Some(Listener::new("Kafka", DrainStage::Requests, vec![announcement], serve)))
}

/// Checks what the settings of Kafka mean together; each one alone has been checked when it was read.
///
/// # Errors
///
/// Fails if Kafka is enabled but cannot be served with these settings, or by this build.
#[cfg(not(feature = "kafka"))]
pub(in crate::commands) fn check(settings: &Settings) -> anyhow::Result<()> {
    if settings.kafka.enabled {
        return Err(anyhow::anyhow!(
            "`kafka_enabled` is true, but this `mlserver` was built without the feature `kafka`: use the one of the Python wheel or \
             of the container image, or build it with `cargo build --release --features kafka`"
        ));
    }
    Ok(())
}

/// Checks what the settings of Kafka mean together; each one alone has been checked when it was read.
///
/// # Errors
///
/// Fails if Kafka is enabled but cannot be served with these settings.
#[cfg(feature = "kafka")]
pub(in crate::commands) fn check(settings: &Settings) -> anyhow::Result<()> {
    let kafka = &settings.kafka;
    if kafka.enabled {
        kafka.check()?;
        connection(kafka).client_config()?;
    }
    Ok(())
}

#[cfg(all(test, feature = "kafka"))]
mod tests {
    use super::*;
    use crate::settings::KafkaSettings;
    use crate::types::Properties;

    #[test]
    fn properties_with_settings_of_their_own_are_refused() {
        let config = Properties([("group.id".to_owned(), "mine".to_owned())].into());
        let with_config = |enabled| {
            let kafka = KafkaSettings { enabled, config: config.clone(), ..KafkaSettings::default() };
            check(&Settings { kafka, ..Settings::default() }).map_err(|error| error.to_string())
        };
        let error = with_config(true).unwrap_err();
        assert!(error.contains("`group.id`") && error.contains("`kafka_group_id`"), "{error}");
        with_config(false).unwrap();
    }
}
