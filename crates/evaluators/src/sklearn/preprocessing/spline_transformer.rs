//! `SplineTransformer`.

use std::sync::Arc;

use super::b_spline::BSpline;
use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::EstimatorSpec;
use crate::table::{DenseTable, NumericType, TableData};

/// Replaces each feature by the values of its B-spline basis functions.
#[derive(Debug)]
struct SplineTransformer {
    features: Vec<BSpline>,
    extrapolation: Extrapolation,
    bias: bool,
    /// For each feature, the position of the knots that bound it, and how many of the outer basis functions are
    /// extrapolated.
    degrees: Vec<(usize, usize)>,
    /// Whether missing values become zeros.
    missing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extrapolation {
    Error,
    Constant,
    Linear,
    Continue,
    Periodic,
}

pub(super) fn spline_transformer(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let extrapolation = match fitted.text("extrapolation")? {
        "error" => Extrapolation::Error,
        "constant" => Extrapolation::Constant,
        "linear" => Extrapolation::Linear,
        "continue" => Extrapolation::Continue,
        "periodic" => Extrapolation::Periodic,
        _ => return Err(fitted.unsupported("extrapolation")),
    };
    if fitted.flag("sparse_output")? {
        return Err(fitted.unsupported("sparse_output"));
    }
    let missing = match fitted.text_if("handle_missing") {
        None | Some("error") => false,
        Some("zeros") => true,
        Some(_) => return Err(fitted.unsupported("handle_missing")),
    };
    let degree = fitted.size("degree")?;
    let items = fitted.items("bsplines_")?;
    let splines = items.into_iter().map(|value| BSpline::read(fitted, value, degree)).collect::<Result<Vec<_>, _>>()?;
    let wide = splines.first().map_or(0, BSpline::outputs);
    if splines.iter().any(|spline| spline.outputs() != wide || wide < degree.max(1)) {
        return Err(fitted.unexpected("bsplines_", "splines with the same number of basis functions"));
    }
    // For low degrees one more basis function is extrapolated; from then on scikit-learn bounds all features one knot
    // further in.
    let mut bound = degree;
    let degrees = splines.iter().map(|spline| {
        let own = bound;
        if extrapolation == Extrapolation::Linear && bound <= 1 {
            bound += 1;
        }
        (own.min(spline.knots() / 2), bound.min(wide))
    });
    let degrees = degrees.collect();
    let bias = fitted.flag("include_bias")?;
    Ok(EstimatorSpec::new(
        MethodSet::TRANSFORM,
        splines.len(),
        SplineTransformer { features: splines, extrapolation, bias, degrees, missing },
    ))
}

impl SplineTransformer {
    /// Returns the basis functions of one feature at `x`.
    fn bases(&self, feature: usize, x: f64, info: &EstimatorInfo) -> Result<Vec<f64>, PredictError> {
        let spline = &self.features[feature];
        let (bound, degree) = self.degrees[feature];
        if x.is_nan() {
            return Ok(vec![0.0; spline.outputs()]);
        }
        let (low, high) = spline.range(bound);
        match self.extrapolation {
            Extrapolation::Continue => Ok(spline.at(x)),
            Extrapolation::Periodic => Ok(spline.at(spline.wrap(x))),
            Extrapolation::Error => {
                let (low, high) = spline.domain();
                if x < low || x > high {
                    return Err(PredictError::BeyondKnots { class: Arc::clone(&info.class), column: feature });
                }
                Ok(spline.at(x))
            }
            Extrapolation::Constant | Extrapolation::Linear if low <= x && x <= high => Ok(spline.at(x)),
            Extrapolation::Constant if degree == 0 && x > high => {
                // scikit-learn fails here, too.
                Err(PredictError::BeyondKnots { class: Arc::clone(&info.class), column: feature })
            }
            Extrapolation::Constant => {
                let mut bases = spline.at(if x < low { low } else { high });
                let outputs = bases.len();
                // All others are zero there, except for rounding errors.
                let others = if x < low { degree..outputs } else { 0..outputs - degree };
                bases[others].fill(0.0);
                Ok(bases)
            }
            Extrapolation::Linear => {
                let end = if x < low { low } else { high };
                let (values, slopes) = (spline.at(end), spline.slope_at(end));
                let outputs = values.len();
                let mut bases = vec![0.0; outputs];
                let places = if x < low { 0..degree } else { outputs - degree..outputs };
                for place in places {
                    bases[place] = values[place] + (x - end) * slopes[place];
                }
                Ok(bases)
            }
        }
    }
}

impl Evaluate for SplineTransformer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.numbers(data, self.missing)?;
        let features = self.features.len();
        let mut values = Vec::new();
        for (index, &value) in x.to_f64().iter().enumerate() {
            let mut bases = self.bases(index % features, value, info)?;
            if !self.bias {
                bases.pop();
            }
            values.extend(bases);
        }
        let numeric = if x.is_single() { NumericType::F32 } else { NumericType::F64 };
        let dropped = usize::from(!self.bias);
        let columns = self.features.iter().map(|spline| spline.outputs() - dropped).sum();
        Ok(TableData::Table(DenseTable { elements: numeric.elements(values), rows: x.rows, columns }))
    }

    fn cost(&self) -> u64 {
        50 + self.features.iter().map(|spline| 50 + 2 * spline.outputs() as u64).sum::<u64>()
    }
}
