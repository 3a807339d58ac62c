//! `KBinsDiscretizer`.

use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{EstimatorInfo, Evaluate};
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::EstimatorSpec;
use crate::table::{DenseTable, NumericType, SparseRows, TableData, to_f32};

#[derive(Debug)]
struct Discretizer {
    /// The inner edges of each feature, in ascending order.
    edges: Vec<Vec<f64>>,
    /// The number of bins of each feature.
    counts: Vec<usize>,
    encode: BinEncoding,
    /// The type of the result, if it is not that of the input.
    numeric: Option<NumericType>,
    /// Whether numbers slightly below an edge count as being on it.
    tolerant: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BinEncoding {
    Ordinal,
    OneHot { sparse: bool },
}

pub(super) fn k_bins(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let encode = match fitted.text("encode")? {
        "ordinal" => BinEncoding::Ordinal,
        "onehot" => BinEncoding::OneHot { sparse: true },
        "onehot-dense" => BinEncoding::OneHot { sparse: false },
        _ => return Err(fitted.unsupported("encode")),
    };
    let all = fitted.items("bin_edges_")?;
    let counts = fitted.sizes("n_bins_", all.len())?;
    let mut edges = Vec::with_capacity(all.len());
    for (value, &count) in all.into_iter().zip(&counts) {
        let each = fitted.matrix_of("bin_edges_", value)?.values;
        if each.len() < 2 || count + 1 != each.len() || each.iter().any(|edge| edge.is_nan()) {
            return Err(fitted.unexpected("bin_edges_", "one more edge than bins"));
        }
        edges.push(each[1..each.len() - 1].to_vec());
    }
    let numeric = match fitted.get("dtype") {
        Some(_) => Some(fitted.dtype("dtype")?),
        None => None,
    };
    if !matches!(numeric, None | Some(NumericType::F32 | NumericType::F64)) {
        return Err(fitted.unsupported("dtype"));
    }
    let tolerant = fitted.version() < SklearnVersion(1, 1);
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, edges.len(), Discretizer { edges, counts, encode, numeric, tolerant }))
}

impl Discretizer {
    /// Returns the bin of a number that is not missing.
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

impl Evaluate for Discretizer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let features = self.edges.len();
        let own = if x.is_single() { NumericType::F32 } else { NumericType::F64 };
        let numeric = self.numeric.unwrap_or(own);
        let single = numeric == NumericType::F32;
        let values = x.to_f64();
        let place = |(index, &value): (usize, &f64)| {
            let value = if single { f64::from(to_f32(value)) } else { value };
            self.place(index % features, value, single)
        };
        let places: Vec<usize> = values.iter().enumerate().map(place).collect();
        if self.encode == BinEncoding::Ordinal {
            #[expect(clippy::cast_precision_loss, reason = "bins are few")]
            let places = places.into_iter().map(|place| place as f64).collect();
            return Ok(TableData::Table(DenseTable {
                elements: numeric.elements(places),
                rows: x.rows,
                columns: features,
            }));
        }
        let mut result = SparseRows::new(self.counts.iter().sum(), numeric);
        for row in places.chunks_exact(features) {
            let mut start = 0;
            result.push_row(row.iter().zip(&self.counts).map(|(place, count)| {
                start += count;
                (start - count + place, 1.0)
            }));
        }
        let dense = self.encode == BinEncoding::OneHot { sparse: false };
        Ok(if dense { TableData::Table(result.table(0..x.rows)) } else { TableData::Sparse(result) })
    }

    fn cost(&self) -> u64 {
        50 + 10 * self.edges.len() as u64
    }
}
