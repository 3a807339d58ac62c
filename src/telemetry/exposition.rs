//! Metrics that the code of models records in worker processes, merged as if they came from one process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};

use super::workers::{MAX_METRICS, MAX_SERIES, is_name};

/// A source of metrics that are fetched before each scrape.
pub trait MetricsSource: Send + Sync {
    /// Fetches the metrics that are available immediately. Others keep their last values.
    fn refresh(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// A metric of one process, with all its series.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Family {
    pub name: String,
    pub help: String,
    pub kind: MetricKind,
    pub merge: Merge,
    pub samples: Vec<Sample>,
}

/// The type of a metric in Prometheus' text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
    Summary,
    Untyped,
}

/// How the values of several processes are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Merge {
    Sum,
    Max,
    Min,
    /// They stay separate, with the label `pid`.
    Each,
}

/// One value: the name with its suffix, labels, number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Sample(pub String, pub Vec<(String, String)>, #[serde(deserialize_with = "number")] pub f64);

/// Reads a number that is written as a string, because JSON has no infinity.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

/// The last metrics of all workers. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Expositions(Arc<Mutex<ExpositionState>>);

#[derive(Debug, Default)]
struct ExpositionState {
    /// The process id and metrics of each worker, by its name.
    workers: BTreeMap<String, (u32, Vec<Family>)>,
    /// The counts of workers that have ended, because counters must not decrease.
    gone: Vec<Family>,
}

impl Expositions {
    /// Replaces the metrics of a worker. Families beyond [`MAX_METRICS`] and series beyond [`MAX_SERIES`] are dropped.
    pub fn set(&self, worker: &str, pid: u32, mut families: Vec<Family>) {
        families.retain(|family| is_name(&family.name));
        families.truncate(MAX_METRICS);
        for family in &mut families {
            family.samples.retain(|Sample(name, ..)| is_name(name));
            family.samples.truncate(MAX_SERIES);
        }
        if families.is_empty() && !self.0.lock().workers.contains_key(worker) {
            return;
        }
        self.0.lock().workers.insert(worker.to_owned(), (pid, families));
    }

    /// Removes a worker that has ended. Its counts are kept, its gauges are not.
    pub fn forget(&self, worker: &str) {
        let state = &mut *self.0.lock();
        let Some((_, families)) = state.workers.remove(worker) else { return };
        let counted =
            |family: &Family| matches!(family.kind, MetricKind::Counter | MetricKind::Histogram | MetricKind::Summary);
        let families: Vec<Family> = families.into_iter().filter(counted).collect();
        let before = std::mem::take(&mut state.gone);
        let mut merged = Merged::default();
        for family in before.iter().chain(&families) {
            merged.add(family, None);
        }
        state.gone = merged.into_families();
        // The limits hold for all workers that have ended, too.
        state.gone.truncate(MAX_METRICS);
        for family in &mut state.gone {
            family.samples.truncate(MAX_SERIES);
        }
    }

    /// Writes all metrics in the classic text format, except for names that are `taken`.
    pub fn text(&self, taken: &BTreeSet<&str>) -> String {
        let state = self.0.lock();
        let mut merged = Merged::default();
        for family in &state.gone {
            merged.add(family, None);
        }
        for (pid, families) in state.workers.values() {
            for family in families {
                merged.add(family, Some(*pid));
            }
        }
        drop(state);
        merged.text(taken)
    }
}

/// Families of several processes.
#[derive(Debug, Default)]
struct Merged(BTreeMap<String, Series>);

#[derive(Debug)]
struct Series {
    help: String,
    kind: MetricKind,
    merge: Merge,
    /// In the order in which they were first reported, because the buckets of a histogram must keep theirs.
    order: Vec<(String, Vec<(String, String)>)>,
    values: BTreeMap<(String, Vec<(String, String)>), f64>,
}

impl Merged {
    /// Adds a family. It is ignored if an earlier one of the same name has another kind.
    fn add(&mut self, family: &Family, pid: Option<u32>) {
        let Family { name, help, kind, merge, samples } = family;
        let series = self.0.entry(name.clone()).or_insert_with(|| Series {
            help: help.clone(),
            kind: *kind,
            merge: *merge,
            order: Vec::new(),
            values: BTreeMap::new(),
        });
        if series.kind != *kind {
            return;
        }
        for Sample(name, labels, value) in samples {
            let mut labels = labels.clone();
            if let (Merge::Each, Some(pid)) = (series.merge, pid) {
                labels.push(("pid".to_owned(), pid.to_string()));
            }
            let key = (name.clone(), labels);
            if let Some(sum) = series.values.get_mut(&key) {
                *sum = match series.merge {
                    Merge::Sum => *sum + value,
                    Merge::Max => sum.max(*value),
                    Merge::Min => sum.min(*value),
                    Merge::Each => *value,
                };
            } else {
                series.order.push(key.clone());
                series.values.insert(key, *value);
            }
        }
    }

    fn into_families(self) -> Vec<Family> {
        let family = |(name, series): (String, Series)| {
            let Series { help, kind, merge, order, values } = series;
            let samples = order.into_iter().map(|key| {
                let value = values.get(&key).copied().unwrap_or_default();
                Sample(key.0, key.1, value)
            });
            Family { name, help, kind, merge, samples: samples.collect() }
        };
        self.0.into_iter().map(family).collect()
    }

    fn text(self, taken: &BTreeSet<&str>) -> String {
        let mut text = String::new();
        for Family { name, help, kind, samples, .. } in self.into_families() {
            if taken.contains(name.as_str()) {
                continue;
            }
            let kind = match kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
                MetricKind::Summary => "summary",
                MetricKind::Untyped => "untyped",
            };
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for Sample(name, labels, value) in samples {
                text.push_str(&name);
                for (index, (label, value)) in labels.iter().enumerate() {
                    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                    let _ = write!(text, "{}{label}=\"{value}\"", if index == 0 { '{' } else { ',' });
                }
                let closing = if labels.is_empty() { "" } else { "}" };
                let _ = match value {
                    f64::INFINITY => writeln!(text, "{closing} +Inf"),
                    f64::NEG_INFINITY => writeln!(text, "{closing} -Inf"),
                    // `{:?}` writes 3 as 3.0, as Prometheus' own clients do.
                    value => writeln!(text, "{closing} {value:?}"),
                };
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type ExpectedSample<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

    fn family(name: &str, kind: MetricKind, merge: Merge, samples: &[ExpectedSample<'_>]) -> Family {
        let labels = |labels: &[(&str, &str)]| labels.iter().map(|(l, v)| ((*l).to_owned(), (*v).to_owned())).collect();
        let samples = samples.iter().map(|(name, of, value)| Sample((*name).to_owned(), labels(of), *value)).collect();
        Family { name: name.to_owned(), help: "Help\nof \\".to_owned(), kind, merge, samples }
    }

    #[test]
    fn counters_are_summed_and_outlive_their_worker() {
        let all = Expositions::default();
        let counter = |value| {
            vec![family("seen_total", MetricKind::Counter, Merge::Sum, &[("seen_total", &[("a", "b\"")], value)])]
        };
        all.set("w-0", 10, counter(2.0));
        all.set("w-1", 11, counter(3.0));
        all.set("w-1", 11, counter(4.0));
        let expected = |value| {
            format!("# HELP seen_total Help\\nof \\\\\n# TYPE seen_total counter\nseen_total{{a=\"b\\\"\"}} {value}\n")
        };
        assert_eq!(all.text(&BTreeSet::new()), expected("6.0"));
        all.forget("w-0");
        all.forget("w-0");
        assert_eq!(all.text(&BTreeSet::new()), expected("6.0"));
        all.set("w-0", 12, counter(1.0));
        assert_eq!(all.text(&BTreeSet::new()), expected("7.0"));
        assert_eq!(all.text(&BTreeSet::from(["seen_total"])), "", "the name is the server's own");
    }

    #[test]
    fn counts_of_ended_workers_are_limited() {
        let all = Expositions::default();
        for run in 0..3 {
            let sample = |index| {
                let label = ("label".to_owned(), format!("{run}-{index}"));
                Sample("seen_total".to_owned(), vec![label], 1.0)
            };
            let family = family("seen_total", MetricKind::Counter, Merge::Sum, &[]);
            all.set("w-0", run, vec![Family { samples: (0..MAX_SERIES - 1).map(sample).collect(), ..family }]);
            all.forget("w-0");
        }
        assert_eq!(all.0.lock().gone[0].samples.len(), MAX_SERIES);
    }

    #[test]
    fn gauges_use_their_merge_mode_and_end_with_their_worker() {
        let all = Expositions::default();
        for (worker, pid, value) in [("w-0", 10, 1.5), ("w-1", 11, f64::INFINITY)] {
            let of = |name, merge| family(name, MetricKind::Gauge, merge, &[(name, &[], value)]);
            all.set(worker, pid, vec![of("most", Merge::Max), of("least", Merge::Min), of("one", Merge::Each)]);
        }
        let text = all.text(&BTreeSet::new());
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["least 1.5", "most +Inf", "one{pid=\"10\"} 1.5", "one{pid=\"11\"} +Inf"]);
        all.forget("w-1");
        assert!(!all.text(&BTreeSet::new()).contains("Inf"));
    }

    #[test]
    fn buckets_keep_their_order() {
        let all = Expositions::default();
        let bucket = |le, value| ("t_bucket", le, value);
        let buckets = [bucket("0.5", 1.0), bucket("10.0", 2.0), bucket("+Inf", 2.0)];
        let samples =
            buckets.map(|(name, le, value)| Sample(name.to_owned(), vec![("le".to_owned(), le.to_owned())], value));
        let histogram = Family { samples: samples.into(), ..family("t", MetricKind::Histogram, Merge::Sum, &[]) };
        all.set("w-0", 1, vec![histogram.clone()]);
        all.forget("w-0");
        all.set("w-0", 2, vec![histogram]);
        let text = all.text(&BTreeSet::new());
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines, ["t_bucket{le=\"0.5\"} 2.0", "t_bucket{le=\"10.0\"} 4.0", "t_bucket{le=\"+Inf\"} 4.0"]);
    }

    #[test]
    fn numbers_are_read_as_python_writes_them() {
        let read = |text: &str| {
            serde_json::from_str::<Sample>(&format!(r#"["x",[["a","b"]],"{text}"]"#)).map(|s| s.2.to_bits())
        };
        assert_eq!(read("3.0").unwrap(), 3.0_f64.to_bits());
        assert_eq!(read("inf").unwrap(), f64::INFINITY.to_bits());
        assert_eq!(read("1e-07").unwrap(), 1e-7_f64.to_bits());
        assert!(f64::from_bits(read("nan").unwrap()).is_nan());
        assert!(read("many").is_err());
    }
}
