//! Kernels between a row and the rows of a fit, and weighted sums of them.

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::{FittedMatrix, FittedObject, SklearnVersion};
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{PANEL, affine, divide, dot};
use super::spec::EstimatorSpec;
use crate::exp::exp;
use crate::panels::{down, panels};
use crate::table::{DenseTable, TableData};
use crate::wide::wide;

/// The error of a sum that is accepted, as a share of the largest sum.
const ACCEPTED_ERROR: f64 = 1e-10;

/// How many rows of the fit are tried to find the size of sums.
const TRIED: usize = 64;

/// The kernel function.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kernel {
    Linear,
    Poly {
        gamma: f64,
        coef0: f64,
        degree: i32,
    },
    Rbf {
        gamma: f64,
    },
    Sigmoid {
        gamma: f64,
        coef0: f64,
    },
    Laplacian {
        gamma: f64,
    },
    /// The inner product of rows that are divided by their length, unless it is below `zero`.
    Cosine {
        zero: f64,
    },
}

impl Kernel {
    /// Reads the parameters of a support vector machine.
    pub(super) fn of_svm(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        let gamma = || fitted.number("_gamma");
        let coef0 = || fitted.number("coef0");
        match fitted.text_if("kernel") {
            Some("linear") => Ok(Self::Linear),
            Some("poly") => Ok(Self::Poly { gamma: gamma()?, coef0: coef0()?, degree: degree(fitted)? }),
            Some("rbf") => Ok(Self::Rbf { gamma: gamma()? }),
            Some("sigmoid") => Ok(Self::Sigmoid { gamma: gamma()?, coef0: coef0()? }),
            _ => Err(fitted.unsupported("kernel")),
        }
    }

    /// Reads the parameters of `pairwise_kernels` between rows of so many features. Those that are `None` have the defaults of that
    /// function.
    pub(super) fn pairwise(fitted: &FittedObject<'_>, features: usize) -> Result<Self, LoadError> {
        #[expect(clippy::cast_precision_loss, reason = "a count of features")]
        let default_gamma = 1.0 / features.max(1) as f64;
        let or = |name, default| if fitted.get(name).is_some() { fitted.number(name) } else { Ok(default) };
        let gamma = || or(if fitted.get("gamma_").is_some() { "gamma_" } else { "gamma" }, default_gamma);
        let coef0 = || or("coef0", 1.0);
        match fitted.text_if("kernel") {
            Some("linear") => Ok(Self::Linear),
            Some("poly" | "polynomial") => {
                let degree = if fitted.get("degree").is_some() { degree(fitted)? } else { 3 };
                Ok(Self::Poly { gamma: gamma()?, coef0: coef0()?, degree })
            }
            Some("rbf") => Ok(Self::Rbf { gamma: gamma()? }),
            Some("sigmoid") => Ok(Self::Sigmoid { gamma: gamma()?, coef0: coef0()? }),
            Some("laplacian") => Ok(Self::Laplacian { gamma: gamma()? }),
            Some("cosine") => {
                // Since 1.0, rows that are almost zero keep their length.
                let almost = fitted.version() >= SklearnVersion(1, 0);
                Ok(Self::Cosine { zero: if almost { 10.0 * f64::EPSILON } else { f64::MIN_POSITIVE } })
            }
            _ => Err(fitted.unsupported("kernel")),
        }
    }

    /// Returns the kernels of a row with the rows of panels, including the padding of the last panel.
    fn of(self, x: &[f64], panels: &[[f64; PANEL]]) -> Vec<f64> {
        let mut kernels = vec![0.0; panels.len() / x.len().max(1) * PANEL];
        let (sums, _) = kernels.as_chunks_mut();
        match self {
            Self::Rbf { .. } => wide(
                #[inline(always)]
                || down::<_, PANEL, 1>(x, panels, sums, |x, y| (x - y) * (x - y)),
            ),
            Self::Laplacian { .. } => wide(
                #[inline(always)]
                || down::<_, PANEL, 1>(x, panels, sums, |x, y| (x - y).abs()),
            ),
            _ => wide(
                #[inline(always)]
                || down::<_, PANEL, 1>(x, panels, sums, |x, y| x * y),
            ),
        }
        match self {
            Self::Linear | Self::Cosine { .. } => {}
            Self::Poly { gamma, coef0, degree } => {
                for product in &mut kernels {
                    *product = (gamma * *product + coef0).powi(degree);
                }
            }
            Self::Rbf { gamma } | Self::Laplacian { gamma } => {
                for distance in &mut kernels {
                    *distance *= -gamma;
                }
                exp(&mut kernels);
            }
            Self::Sigmoid { gamma, coef0 } => {
                for product in &mut kernels {
                    *product = (gamma * *product + coef0).tanh();
                }
            }
        }
        kernels
    }
}

/// Reads the degree of a polynomial, which must be whole.
fn degree(fitted: &FittedObject<'_>) -> Result<i32, LoadError> {
    let degree = fitted.number("degree")?;
    #[expect(clippy::cast_possible_truncation, reason = "integers in range are unchanged")]
    let whole = degree as i32;
    if f64::from(whole).to_bits() == degree.to_bits() { Ok(whole) } else { Err(fitted.unsupported("degree")) }
}

/// A kernel with each of some rows.
#[derive(Debug)]
pub(super) struct KernelRows {
    kernel: Kernel,
    panels: Vec<[f64; PANEL]>,
    count: usize,
    features: usize,
}

impl KernelRows {
    /// Prepares rows, which have at least one feature.
    pub(super) fn new(kernel: Kernel, rows: &FittedMatrix) -> Self {
        let (count, features) = (rows.rows, rows.columns);
        let panels = if let Kernel::Cosine { zero } = kernel {
            let units: Vec<f64> = rows.values.chunks_exact(features).flat_map(|row| unit(row, zero)).collect();
            panels(&units, features)
        } else {
            panels(&rows.values, features)
        };
        Self { kernel, panels, count, features }
    }

    /// Reads the rows of an attribute, and the parameters of `pairwise_kernels`.
    pub(super) fn pairwise(
        fitted: &FittedObject<'_>,
        attribute: &'static str,
    ) -> Result<(Self, FittedMatrix), LoadError> {
        let rows = fitted.double_matrix(attribute)?;
        Ok((Self::new(Kernel::pairwise(fitted, rows.columns)?, &rows), rows))
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) const fn features(&self) -> usize {
        self.features
    }

    /// Returns the kernels of a row with every one of the rows.
    pub(super) fn of(&self, row: &[f64]) -> Vec<f64> {
        let mut kernels = match self.kernel {
            Kernel::Cosine { zero } => self.kernel.of(&unit(row, zero), &self.panels),
            kernel => kernel.of(row, &self.panels),
        };
        kernels.truncate(self.count);
        kernels
    }

    pub(super) const fn cost(&self) -> u64 {
        50 + (self.count * (self.features / 4 + 8)) as u64
    }
}

/// Divides a row by its length, unless that is below `zero`.
fn unit(row: &[f64], zero: f64) -> Vec<f64> {
    let mut row = row.to_vec();
    let length = dot(&row, &row).sqrt();
    if length >= zero {
        divide(&mut row, length);
    }
    row
}

/// Returns whether weighted sums of kernels have the digits of their terms. If large weights cancel each other, the last bits of the
/// kernels decide digits of the sums, on every machine in another way.
///
/// `weights` has one row for each row of the fit and one column for each output. `kernels` are tried with some rows of the fit.
pub(super) fn is_precise(
    rows: &FittedMatrix,
    weights: &[f64],
    outputs: usize,
    kernels: impl Fn(&[f64]) -> Vec<f64>,
) -> bool {
    let (mut largest_kernel, mut largest) = (0.0_f64, vec![0.0_f64; outputs]);
    let step = rows.rows.div_ceil(TRIED).max(1);
    for row in rows.values.chunks_exact(rows.columns).step_by(step) {
        let kernels = kernels(row);
        largest_kernel = kernels.iter().fold(largest_kernel, |largest, kernel| largest.max(kernel.abs()));
        let sums = affine(&kernels, kernels.len(), weights, &vec![0.0; outputs]);
        largest.iter_mut().zip(sums).for_each(|(largest, sum)| *largest = largest.max(sum.abs()));
    }
    let is_precise = |(output, largest): (usize, f64)| {
        let squares: f64 = weights.iter().skip(output).step_by(outputs).map(|weight| weight * weight).sum();
        8.0 * f64::EPSILON * largest_kernel * squares.sqrt() <= ACCEPTED_ERROR * largest
    };
    largest.into_iter().enumerate().all(is_precise)
}

/// Weighted sums of the kernels with the rows of a fit.
#[derive(Debug)]
pub(super) struct KernelSums {
    rows: KernelRows,
    /// One row for each row of the fit, one column for each output.
    weights: Vec<f64>,
    outputs: usize,
    centering: Option<KernelCentering>,
}

/// The means of the kernels of the fit, of each of its rows and of all.
#[derive(Debug)]
pub(super) struct KernelCentering {
    pub(super) of_rows: Vec<f64>,
    pub(super) of_all: f64,
}

impl KernelCentering {
    pub(super) fn apply(&self, kernels: &mut [f64]) {
        #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
        let mean = kernels.iter().sum::<f64>() / self.of_rows.len() as f64;
        for (kernel, of_row) in kernels.iter_mut().zip(&self.of_rows) {
            *kernel = *kernel - of_row - mean + self.of_all;
        }
    }
}

/// Creates an estimator that returns weighted sums of kernels with the rows of `attribute`. The weights come from `weights`.
pub(super) fn sums(
    fitted: &FittedObject<'_>,
    methods: MethodSet,
    attribute: &'static str,
    weights: (&'static str, Vec<f64>),
    centering: Option<KernelCentering>,
) -> Result<EstimatorSpec, LoadError> {
    let (rows, train) = KernelRows::pairwise(fitted, attribute)?;
    let (name, weights) = weights;
    let outputs = weights.len() / rows.count.max(1);
    fitted.check_count(name, outputs.max(1).saturating_mul(rows.count), weights.len())?;
    let features = rows.features;
    let sums = KernelSums { rows, weights, outputs, centering };
    if !is_precise(&train, &sums.weights, outputs, |row| sums.kernels(row)) {
        return Err(fitted.unexpected(name, "smaller numbers: these cancel each other, and lose digits"));
    }
    Ok(EstimatorSpec::new(methods, features, sums))
}

impl KernelSums {
    fn kernels(&self, row: &[f64]) -> Vec<f64> {
        let mut kernels = self.rows.of(row);
        if let Some(centering) = &self.centering {
            centering.apply(&mut kernels);
        }
        kernels
    }
}

impl Evaluate for KernelSums {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let zeros = vec![0.0; self.outputs];
        let mut values = Vec::with_capacity(x.rows * self.outputs);
        for row in x.to_f64().chunks_exact(self.rows.features) {
            values.extend(affine(&self.kernels(row), self.rows.count, &self.weights, &zeros));
        }
        Ok(TableData::Table(DenseTable::of_f64(values, self.outputs)))
    }

    fn cost(&self) -> u64 {
        self.rows.cost() + self.weights.len() as u64
    }
}
