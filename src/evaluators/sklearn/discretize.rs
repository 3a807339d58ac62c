//! Bins and quantiles: numbers by their place among those of the fit.

use std::sync::Arc;

use super::classes::{Classes, Family};
use super::data::{Data, Table, to_f32};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Evaluate, Method, Methods};
use super::fitted::{Fitted, Version};
use super::numerics::{interpolate, normal_quantile};
use super::sparse::{Numeric, Sparse};

pub(super) const CLASSES: Classes =
    &[("preprocessing.KBinsDiscretizer", bins), ("preprocessing.QuantileTransformer", quantiles)];

#[derive(Debug)]
struct Bins {
    /// The inner edges of each feature, ascending.
    edges: Vec<Vec<f64>>,
    /// How many bins each feature has.
    counts: Vec<usize>,
    encode: Encode,
    /// The type of results, where it does not follow the input.
    numeric: Option<Numeric>,
    /// Whether numbers slightly below an edge count as on it.
    tolerant: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encode {
    Ordinal,
    OneHot { sparse: bool },
}

fn bins(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let encode = match fitted.text("encode")? {
        "ordinal" => Encode::Ordinal,
        "onehot" => Encode::OneHot { sparse: true },
        "onehot-dense" => Encode::OneHot { sparse: false },
        _ => return Err(fitted.unsupported("encode")),
    };
    let all = fitted.items("bin_edges_")?;
    let counts = fitted.sizes("n_bins_", all.len())?;
    let mut edges = Vec::with_capacity(all.len());
    for (value, &count) in all.into_iter().zip(&counts) {
        let each = fitted.matrix_of("bin_edges_", value)?.values;
        if each.len() < 2 || count + 1 != each.len() || each.iter().any(|edge| edge.is_nan()) {
            return Err(fitted.unexpected("bin_edges_", "an edge more than there are bins"));
        }
        edges.push(each[1..each.len() - 1].to_vec());
    }
    let numeric = match fitted.get("dtype") {
        Some(_) => Some(fitted.dtype("dtype")?),
        None => None,
    };
    if !matches!(numeric, None | Some(Numeric::F32 | Numeric::F64)) {
        return Err(fitted.unsupported("dtype"));
    }
    let tolerant = fitted.version() < Version(1, 1);
    Ok(Family::new(Methods::TRANSFORM, edges.len(), Bins { edges, counts, encode, numeric, tolerant }))
}

impl Bins {
    /// The bin of a number that is not missing.
    fn place(&self, feature: usize, value: f64, single: bool) -> usize {
        let value = if self.tolerant {
            let round = |value: f64| if single { f64::from(to_f32(value)) } else { value };
            round(value + round(round(1e-8) + round(round(1e-5) * value.abs())))
        } else {
            value
        };
        self.edges[feature].partition_point(|&edge| edge <= value)
    }
}

impl Evaluate for Bins {
    fn call(&self, _: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let x = about.finite(data)?;
        let features = self.edges.len();
        let own = if x.is_single() { Numeric::F32 } else { Numeric::F64 };
        let numeric = self.numeric.unwrap_or(own);
        let single = numeric == Numeric::F32;
        let values = x.to_f64();
        let place = |(index, &value): (usize, &f64)| {
            let value = if single { f64::from(to_f32(value)) } else { value };
            self.place(index % features, value, single)
        };
        let places: Vec<usize> = values.iter().enumerate().map(place).collect();
        if self.encode == Encode::Ordinal {
            #[expect(clippy::cast_precision_loss, reason = "bins are few")]
            let places = places.into_iter().map(|place| place as f64).collect();
            return Ok(Data::Table(Table { elements: numeric.elements(places), rows: x.rows, columns: features }));
        }
        let mut result = Sparse::new(self.counts.iter().sum(), numeric);
        for row in places.chunks_exact(features) {
            let mut start = 0;
            result.push_row(row.iter().zip(&self.counts).map(|(place, count)| {
                start += count;
                (start - count + place, 1.0)
            }));
        }
        let dense = self.encode == Encode::OneHot { sparse: false };
        Ok(if dense { Data::Table(result.table(0..x.rows)) } else { Data::Sparse(result) })
    }

    fn cost(&self) -> u64 {
        50 + 10 * self.edges.len() as u64
    }
}

/// Each number's place among those of the fit, as a share or as a quantile of the normal distribution.
#[derive(Debug)]
struct Quantiles {
    /// What stands at each share of each feature, ascending.
    values: Vec<Vec<f64>>,
    /// These shares.
    references: Vec<f64>,
    normal: bool,
}

/// How far from the ends a share of the normal distribution is at least.
const BOUND: f64 = 1e-7;

fn quantiles(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let normal = match fitted.text("output_distribution")? {
        "normal" => true,
        "uniform" => false,
        _ => return Err(fitted.unsupported("output_distribution")),
    };
    let table = fitted.matrix("quantiles_")?;
    let references = fitted.floats_of("references_", table.rows)?;
    if table.values.is_empty() {
        return Err(fitted.unexpected("quantiles_", "at least one quantile"));
    }
    let column = |feature: usize| table.values.iter().skip(feature).step_by(table.columns).copied().collect();
    let values = (0..table.columns).map(column).collect();
    Ok(Family::new(Methods::TRANSFORM, table.columns, Quantiles { values, references, normal }))
}

impl Quantiles {
    fn apply(&self, feature: usize, x: f64, single: bool) -> f64 {
        if x.is_nan() {
            return x;
        }
        let round = |value: f64| if single { f64::from(to_f32(value)) } else { value };
        let quantiles = &self.values[feature];
        let (first, last) = (quantiles[0], quantiles[quantiles.len() - 1]);
        let (below, above) = if self.normal {
            (round(x - round(BOUND)) < first, round(x + round(BOUND)) > last)
        } else {
            (x.total_cmp(&first).is_eq(), x.total_cmp(&last).is_eq())
        };
        let share = if below {
            0.0
        } else if above {
            1.0
        } else {
            // Up and down: of quantiles that repeat, each way finds another end.
            let up = interpolate(x, quantiles.len(), |at| (quantiles[at], self.references[at]));
            let down = interpolate(-x, quantiles.len(), |at| {
                let at = quantiles.len() - 1 - at;
                (-quantiles[at], -self.references[at])
            });
            round(0.5 * (up - down))
        };
        if !self.normal {
            return share;
        }
        let most = BOUND - f64::EPSILON;
        normal_quantile(share).clamp(normal_quantile(most), normal_quantile(1.0 - most))
    }
}

impl Evaluate for Quantiles {
    fn call(&self, _: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        if matches!(data, Data::Sparse(_)) {
            // Zeros that are not there stay zeros, unlike those that are.
            return Err(PredictError::NotDense { class: Arc::clone(&about.class) });
        }
        let x = about.numbers(data, true)?;
        let features = self.values.len();
        let single = x.is_single();
        let values = x.to_f64();
        let values = values.iter().enumerate().map(|(index, &value)| self.apply(index % features, value, single));
        let numeric = if single { Numeric::F32 } else { Numeric::F64 };
        Ok(Data::Table(Table { elements: numeric.elements(values.collect()), rows: x.rows, columns: features }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        50 + 100 * self.values.len() as u64
    }
}
