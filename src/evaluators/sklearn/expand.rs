//! Powers, polynomials and splines of features.

use std::sync::Arc;

use super::classes::{Classes, Family};
use super::data::{Data, Table, to_f32};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Estimator, Evaluate, Method, Methods};
use super::fitted::{Fitted, Version};
use super::sparse::Numeric;
use super::spline::Spline;

pub(super) const CLASSES: Classes = &[
    ("preprocessing.PolynomialFeatures", polynomial),
    ("preprocessing.PowerTransformer", power),
    ("preprocessing.SplineTransformer", splines),
];

/// Products of features.
#[derive(Debug)]
struct Polynomial {
    features: usize,
    /// The features of each product, one after another.
    factors: Vec<usize>,
    /// Where the factors of each product end.
    ends: Vec<usize>,
}

fn polynomial(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let features = fitted.size("n_features_in_")?;
    let degree = fitted.need("degree")?;
    let (least, most) = match degree.items() {
        Some(both) => match both[..] {
            [least, most] => (least.as_i64(), most.as_i64()),
            _ => return Err(fitted.unsupported("degree")),
        },
        None => (Some(0), degree.as_i64()),
    };
    let degree = |degree: Option<i64>| {
        let degree = degree.and_then(|degree| usize::try_from(degree).ok());
        degree.ok_or_else(|| fitted.unexpected("degree", "a degree, or the least and the largest"))
    };
    let (least, most) = (degree(least)?, degree(most)?);
    let repeats = !fitted.flag("interaction_only")?;
    let mut polynomial = Polynomial { features, factors: Vec::new(), ends: Vec::new() };
    if fitted.flag("include_bias")? {
        polynomial.ends.push(0);
    }
    for degree in least.max(1)..=most {
        if !repeats && degree > features || features == 0 {
            break;
        }
        polynomial.add(degree, repeats, fitted)?;
    }
    Ok(Family::new(Methods::TRANSFORM, features, polynomial))
}

impl Polynomial {
    /// Adds the products of `degree` features, in the order of their places.
    fn add(&mut self, degree: usize, repeats: bool, fitted: &Fitted<'_>) -> Result<(), LoadError> {
        let step = usize::from(!repeats);
        fitted.spend(degree)?;
        let mut product: Vec<usize> = (0..degree).map(|index| index * step).collect();
        loop {
            // Few numbers in a file can stand for very many products.
            fitted.spend(degree + 1)?;
            self.factors.extend(&product);
            self.ends.push(self.factors.len());
            // The last factor that can grow does, and those behind it follow.
            let limit = |index: usize| self.features - 1 - (degree - 1 - index) * step;
            let Some(index) = (0..degree).rev().find(|&index| product[index] < limit(index)) else { return Ok(()) };
            let first = product[index] + 1;
            for (offset, factor) in product[index..].iter_mut().enumerate() {
                *factor = first + offset * step;
            }
        }
    }
}

impl Evaluate for Polynomial {
    fn call(&self, _: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let x = about.finite(data)?;
        let single = x.is_single();
        let mut values = Vec::with_capacity(x.rows * self.ends.len());
        for row in x.to_f64().chunks_exact(self.features.max(1)) {
            let mut start = 0;
            for &end in &self.ends {
                // From the last factor on, as scikit-learn makes each product of a shorter one.
                let factors = self.factors[start..end].iter().rev().map(|&feature| row[feature]);
                let product =
                    factors.reduce(
                        |product, factor| {
                            if single { f64::from(to_f32(product * factor)) } else { product * factor }
                        },
                    );
                values.push(product.unwrap_or(1.0));
                start = end;
            }
        }
        let numeric = if single { Numeric::F32 } else { Numeric::F64 };
        Ok(Data::Table(Table { elements: numeric.elements(values), rows: x.rows, columns: self.ends.len() }))
    }

    fn cost(&self) -> u64 {
        50 + self.factors.len() as u64
    }
}

/// Powers that make features look normal.
#[derive(Debug)]
struct Power {
    lambdas: Vec<f64>,
    box_cox: bool,
    /// Whether small differences are computed without losing digits.
    stable: bool,
    scaler: Option<Estimator>,
}

fn power(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let box_cox = match fitted.text("method")? {
        "box-cox" => true,
        "yeo-johnson" => false,
        _ => return Err(fitted.unsupported("method")),
    };
    let lambdas = fitted.floats("lambdas_")?;
    let features = lambdas.len();
    let scaler = if fitted.flag("standardize")? { Some(fitted.estimator(fitted.need("_scaler")?)?) } else { None };
    if scaler.as_ref().is_some_and(|scaler| {
        !scaler.about.methods.contains(Method::Transform) || scaler.about.features != Some(features)
    }) {
        return Err(fitted.unexpected("_scaler", "a scaler of as many features"));
    }
    let stable = fitted.version() >= Version(1, 7);
    Ok(Family::new(Methods::TRANSFORM, features, Power { lambdas, box_cox, stable, scaler }))
}

impl Power {
    fn apply(&self, lambda: f64, x: f64) -> f64 {
        if self.box_cox {
            return if lambda.abs() < 1e-19 { x.ln() } else { (lambda * x.ln()).exp_m1() / lambda };
        }
        let power = |base: f64, exponent: f64| {
            if self.stable { (exponent * base.ln_1p()).exp_m1() } else { (base + 1.0).powf(exponent) - 1.0 }
        };
        if x >= 0.0 {
            if lambda.abs() < f64::EPSILON { x.ln_1p() } else { power(x, lambda) / lambda }
        } else if (lambda - 2.0).abs() > f64::EPSILON {
            -power(-x, 2.0 - lambda) / (2.0 - lambda)
        } else {
            -(-x).ln_1p()
        }
    }
}

impl Evaluate for Power {
    fn call(&self, _: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let x = about.numbers(data, true)?;
        let features = self.lambdas.len();
        let values = x.to_f64();
        if self.box_cox && values.iter().any(|&value| value <= 0.0) {
            return Err(PredictError::NotPositive { class: Arc::clone(&about.class) });
        }
        let values = values.iter().enumerate().map(|(index, &value)| self.apply(self.lambdas[index % features], value));
        let numeric = if x.is_single() { Numeric::F32 } else { Numeric::F64 };
        let table = Table { elements: numeric.elements(values.collect()), rows: x.rows, columns: features };
        match &self.scaler {
            Some(scaler) => scaler.call(Method::Transform, &Data::Table(table)),
            None => Ok(Data::Table(table)),
        }
    }

    fn cost(&self) -> u64 {
        50 + 60 * self.lambdas.len() as u64
    }
}

/// Bases of splines of each feature.
#[derive(Debug)]
struct Splines {
    features: Vec<Spline>,
    extrapolation: Extrapolation,
    bias: bool,
    /// How many of the outer bases are continued, in each feature; and which knots bound the feature.
    degrees: Vec<(usize, usize)>,
    /// Whether missing values have zeros.
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

fn splines(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
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
    let splines = items.into_iter().map(|value| Spline::read(fitted, value, degree)).collect::<Result<Vec<_>, _>>()?;
    let wide = splines.first().map_or(0, Spline::outputs);
    if splines.iter().any(|spline| spline.outputs() != wide || wide < degree.max(1)) {
        return Err(fitted.unexpected("bsplines_", "splines of as many bases"));
    }
    // Of low degrees one base more is continued, and scikit-learn then bounds all further features one knot further in.
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
    Ok(Family::new(
        Methods::TRANSFORM,
        splines.len(),
        Splines { features: splines, extrapolation, bias, degrees, missing },
    ))
}

impl Splines {
    /// The bases of one feature at `x`.
    fn bases(&self, feature: usize, x: f64, about: &About) -> Result<Vec<f64>, PredictError> {
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
                    return Err(PredictError::BeyondKnots { class: Arc::clone(&about.class), column: feature });
                }
                Ok(spline.at(x))
            }
            Extrapolation::Constant | Extrapolation::Linear if low <= x && x <= high => Ok(spline.at(x)),
            Extrapolation::Constant if degree == 0 && x > high => {
                // Here scikit-learn fails, too.
                Err(PredictError::BeyondKnots { class: Arc::clone(&about.class), column: feature })
            }
            Extrapolation::Constant => {
                let mut bases = spline.at(if x < low { low } else { high });
                let outputs = bases.len();
                // All others are zero there but for rounding.
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

impl Evaluate for Splines {
    fn call(&self, _: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let x = about.numbers(data, self.missing)?;
        let features = self.features.len();
        let mut values = Vec::new();
        for (index, &value) in x.to_f64().iter().enumerate() {
            let mut bases = self.bases(index % features, value, about)?;
            if !self.bias {
                bases.pop();
            }
            values.extend(bases);
        }
        let numeric = if x.is_single() { Numeric::F32 } else { Numeric::F64 };
        let columns = values.len() / x.rows.max(1);
        Ok(Data::Table(Table { elements: numeric.elements(values), rows: x.rows, columns }))
    }

    fn cost(&self) -> u64 {
        50 + self.features.iter().map(|spline| 50 + 2 * spline.outputs() as u64).sum::<u64>()
    }
}
