//! `PolynomialFeatures`.

use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::EstimatorSpec;
use crate::table::{DenseTable, NumericType, TableData, to_f32};

/// Products of features.
#[derive(Debug)]
struct PolynomialFeatures {
    features: usize,
    /// The features of all products, one after another.
    factors: Vec<usize>,
    /// Where the factors of each product end.
    ends: Vec<usize>,
}

pub(super) fn polynomial_features(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let features = fitted.size("n_features_in_")?;
    let degree = fitted.require("degree")?;
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
    let mut polynomial = PolynomialFeatures { features, factors: Vec::new(), ends: Vec::new() };
    if fitted.flag("include_bias")? {
        polynomial.ends.push(0);
    }
    for degree in least.max(1)..=most {
        if !repeats && degree > features || features == 0 {
            break;
        }
        polynomial.add(degree, repeats, fitted)?;
    }
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, polynomial))
}

impl PolynomialFeatures {
    /// Adds all products of `degree` features, in ascending order of their indices.
    fn add(&mut self, degree: usize, repeats: bool, fitted: &FittedObject<'_>) -> Result<(), LoadError> {
        let step = usize::from(!repeats);
        fitted.spend(degree)?;
        let mut product: Vec<usize> = (0..degree).map(|index| index * step).collect();
        loop {
            // A few numbers in a file can result in very many products.
            fitted.spend(degree + 1)?;
            self.factors.extend(&product);
            self.ends.push(self.factors.len());
            // The last factor that can be incremented is, and those after it are reset.
            let limit = |index: usize| self.features - 1 - (degree - 1 - index) * step;
            let Some(index) = (0..degree).rev().find(|&index| product[index] < limit(index)) else { return Ok(()) };
            let first = product[index] + 1;
            for (offset, factor) in product[index..].iter_mut().enumerate() {
                *factor = first + offset * step;
            }
        }
    }
}

impl Evaluate for PolynomialFeatures {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let single = x.is_single();
        let mut values = Vec::with_capacity(x.rows * self.ends.len());
        for row in x.to_f64().chunks_exact(self.features.max(1)) {
            let mut start = 0;
            for &end in &self.ends {
                // Starts at the last factor, because scikit-learn computes each product from a shorter one.
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
        let numeric = if single { NumericType::F32 } else { NumericType::F64 };
        Ok(TableData::Table(DenseTable { elements: numeric.elements(values), rows: x.rows, columns: self.ends.len() }))
    }

    fn cost(&self) -> u64 {
        50 + self.factors.len() as u64
    }
}
