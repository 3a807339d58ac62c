//! The last ten minutes of each model, for the console: a bounded ring of samples, which are taken from the metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use super::latency::LatencyCounts;

/// The time between two samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// The number of samples that are kept of each model: ten minutes.
pub const SAMPLES: usize = 60;

/// The maximum number of models with a history. A model without requests makes room for one with requests.
pub const MAX_MODELS: usize = 2000;

/// Identifies a model in the history: a hash of its name and version, so that long names take no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryKey([u8; 16]);

impl HistoryKey {
    pub fn new(name: &str, version: Option<&str>) -> Self {
        let mut hash = blake3::Hasher::new();
        hash.update(&name.len().to_le_bytes()).update(name.as_bytes());
        if let Some(version) = version {
            hash.update(b"v").update(version.as_bytes());
        }
        let mut key = [0; 16];
        hash.finalize_xof().fill(&mut key);
        Self(key)
    }
}

/// What the metrics of a model say at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelTotals {
    /// The requests that have been answered or have failed.
    pub requests: u64,
    pub failures: u64,
    /// The requests that wait now.
    pub waiting: u64,
    pub latency: LatencyCounts,
}

impl ModelTotals {
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            failures: self.failures.saturating_add(other.failures),
            waiting: self.waiting.saturating_add(other.waiting),
            latency: self.latency.plus(&other.latency),
        }
    }
}

/// What happened to a model in one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelSample {
    pub requests: u32,
    pub failures: u32,
    /// The requests that waited at its end.
    pub waiting: u32,
    /// Quantiles of the latency, in seconds; NaN without requests.
    pub median: f32,
    pub p99: f32,
}

const NO_SAMPLE: ModelSample = ModelSample { requests: 0, failures: 0, waiting: 0, median: f32::NAN, p99: f32::NAN };

impl ModelSample {
    #[expect(clippy::cast_possible_truncation, reason = "plots need no more than the precision of FP32")]
    fn between(before: &ModelTotals, now: &ModelTotals) -> Self {
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        // A count that has become smaller began again at 0: the model was unloaded and loaded between two samples.
        let since = |now: u64, before: u64| narrow(now.checked_sub(before).unwrap_or(now));
        let latency = now.latency.since(&before.latency);
        let quantile = |quantile| latency.quantile(quantile).map_or(f32::NAN, |seconds| seconds as f32);
        Self {
            requests: since(now.requests, before.requests),
            failures: since(now.failures, before.failures),
            waiting: narrow(now.waiting),
            median: quantile(0.5),
            p99: quantile(0.99),
        }
    }
}

/// The samples of a model.
#[derive(Debug, Clone)]
struct ModelTrack {
    totals: ModelTotals,
    samples: [ModelSample; SAMPLES],
    /// Where the next sample is written.
    next: usize,
    /// The number of samples in a row, up to now, without requests.
    idle: u8,
    /// Whether the last round had the model.
    is_present: bool,
}

/// The samples of all models.
#[derive(Debug, Default)]
pub struct History {
    tracks: BTreeMap<HistoryKey, Box<ModelTrack>>,
    /// Whether there has been a model without room. From then on, it is not known when the requests of a new one were sent.
    was_full: bool,
}

impl History {
    /// Adds a sample of each model, and removes the models that are not in `models`.
    pub fn record(&mut self, models: impl IntoIterator<Item = (HistoryKey, ModelTotals)>) {
        for track in self.tracks.values_mut() {
            track.is_present = false;
        }
        let mut newcomers = Vec::new();
        for (key, totals) in models {
            match self.tracks.get_mut(&key) {
                Some(track) => track.add(totals),
                // What has no requests has no history, and takes no memory.
                None if totals.requests > 0 && newcomers.len() < MAX_MODELS => newcomers.push((key, totals)),
                None => {}
            }
        }
        self.tracks.retain(|_, track| track.is_present);
        for (key, totals) in newcomers {
            if self.tracks.len() >= MAX_MODELS {
                self.was_full = true;
                let idle = |track: &ModelTrack| usize::from(track.idle) >= SAMPLES;
                let Some(unused) = self.tracks.iter().find(|(_, track)| idle(track)).map(|(key, _)| *key) else {
                    return;
                };
                self.tracks.remove(&unused);
            }
            let before = if self.was_full { totals } else { ModelTotals::default() };
            let mut track = Box::new(ModelTrack {
                totals: before,
                samples: [NO_SAMPLE; SAMPLES],
                next: 0,
                idle: 0,
                is_present: true,
            });
            track.add(totals);
            self.tracks.insert(key, track);
        }
    }

    /// Returns the samples of a model, the latest last; as if it had had no requests before the first one that is known.
    pub fn samples(&self, key: HistoryKey) -> impl ExactSizeIterator<Item = &ModelSample> {
        let track = self.tracks.get(&key);
        let next = track.map_or(0, |track| track.next);
        let samples = track.map_or(&[NO_SAMPLE; SAMPLES], |track| &track.samples);
        (0..SAMPLES).map(move |index| &samples[(next + index) % SAMPLES])
    }
}

impl ModelTrack {
    fn add(&mut self, totals: ModelTotals) {
        let sample = ModelSample::between(&self.totals, &totals);
        self.totals = totals;
        self.samples[self.next] = sample;
        self.next = (self.next + 1) % SAMPLES;
        self.idle = if sample.requests == 0 { self.idle.saturating_add(1) } else { 0 };
        self.is_present = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::latency::LatencyHistogram;

    fn key(number: usize) -> HistoryKey {
        HistoryKey::new(&format!("model-{number}"), None)
    }

    fn totals(requests: u64) -> ModelTotals {
        ModelTotals { requests, ..ModelTotals::default() }
    }

    fn requests(history: &History, number: usize) -> Vec<u32> {
        history.samples(key(number)).map(|sample| sample.requests).collect()
    }

    /// What the issue allows: 4 MiB for 2,000 models, 0.5 MiB for the quickstart.
    #[test]
    fn history_of_two_thousand_models_takes_less_than_4_mib() {
        // The allocator rounds up and keeps its own notes; nodes of the tree are at least half full.
        let track = size_of::<ModelTrack>() + 32;
        let entry = 2 * size_of::<(HistoryKey, Box<ModelTrack>)>();
        let bytes = MAX_MODELS * (track + entry);
        assert!(bytes <= 4 << 20, "{bytes} bytes");
        assert!(10 * (track + entry) <= 512 << 10);
        let mut history = History::default();
        for _ in 0..3 {
            history.record((0..3 * MAX_MODELS).map(|number| (key(number), totals(1))));
        }
        assert_eq!(history.tracks.len(), MAX_MODELS);
    }

    #[test]
    fn history_keeps_the_last_sixty_differences() {
        let mut history = History::default();
        history.record([(key(1), totals(0))]);
        assert!(history.tracks.is_empty(), "without requests, there is nothing to keep");
        assert_eq!(requests(&history, 1), [0; SAMPLES]);
        history.record([(key(1), totals(5))]);
        history.record([(key(1), totals(7))]);
        assert_eq!(requests(&history, 1)[SAMPLES - 3..], [0, 5, 2]);
        for number in 0..SAMPLES as u64 {
            history.record([(key(1), totals(8 + number))]);
        }
        assert_eq!(requests(&history, 1), [1; SAMPLES]);
        // Loaded again: the counters begin at 0.
        history.record([(key(1), totals(3))]);
        assert_eq!(requests(&history, 1)[SAMPLES - 2..], [1, 3]);
        history.record([]);
        assert!(history.tracks.is_empty(), "the model was unloaded");
    }

    #[test]
    fn history_prefers_models_with_requests() {
        let mut history = History::default();
        history.record((0..MAX_MODELS).map(|number| (key(number), totals(1))));
        let busy = |newcomer: u64| {
            (0..MAX_MODELS).map(|number| (key(number), totals(1))).chain([(key(MAX_MODELS), totals(newcomer))])
        };
        history.record(busy(9));
        assert_eq!(requests(&history, MAX_MODELS), [0; SAMPLES], "all others had requests in the last ten minutes");
        for _ in 0..SAMPLES {
            history.record(busy(9));
        }
        history.record(busy(12));
        assert_eq!(requests(&history, MAX_MODELS)[SAMPLES - 2..], [0, 3], "9 of them may be older");
        assert_eq!(history.tracks.len(), MAX_MODELS);
    }

    #[test]
    fn sample_has_quantiles_of_its_interval() {
        let histogram = LatencyHistogram::default();
        histogram.observe(Duration::from_secs(1));
        let mut history = History::default();
        let at = |requests| ModelTotals { requests, waiting: 4, latency: histogram.counts(), failures: 0 };
        history.record([(key(1), at(1))]);
        histogram.observe(Duration::from_micros(20));
        history.record([(key(1), at(2))]);
        let last = *history.samples(key(1)).last().unwrap();
        assert!(last.p99 < 0.000_026 && last.median > 0.000_009 && last.waiting == 4, "{last:?}");
        history.record([(key(1), at(2))]);
        assert!(history.samples(key(1)).last().unwrap().median.is_nan());
    }

    #[test]
    fn history_keys_differ_by_name_and_version() {
        let keys = [
            HistoryKey::new("a", None),
            HistoryKey::new("a", Some("")),
            HistoryKey::new("a", Some("1")),
            HistoryKey::new("av1", None),
            HistoryKey::new("av", Some("1")),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{index}");
        }
    }
}
