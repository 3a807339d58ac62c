//! The kernels of Gaussian processes, between a row and all rows of the fit.

use crate::sklearn::error::LoadError;
use crate::sklearn::fitted::{FittedMatrix, FittedObject};
use crate::sklearn::numerics::{dot, lanes};
use crate::wide::wide;

/// How deeply sums, products and powers of kernels may be nested.
const MAX_NESTING: usize = 32;

/// A kernel, with the rows of the fit as it needs them.
#[derive(Debug)]
pub(super) enum GaussianKernel {
    Constant(f64),
    /// Noise: no two rows share it.
    White(f64),
    /// A function of the distance, of rows that are divided by length scales.
    Stationary(Shape, ScaledRows),
    /// The inner product, plus the square of `sigma_0`.
    Inner {
        rows: Vec<f64>,
        added: f64,
    },
    Sum(Box<(Self, Self)>),
    Product(Box<(Self, Self)>),
    Power(Box<Self>, f64),
}

/// The functions of a distance.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Gaussian,
    Matern1,
    Matern3,
    Matern5,
    RationalQuadratic { alpha: f64, length: f64 },
    ExpSineSquared { period: f64, length: f64 },
}

/// The rows of the fit, divided by the scale of each feature.
#[derive(Debug)]
pub(super) struct ScaledRows {
    rows: Vec<f64>,
    scale: Vec<f64>,
}

impl ScaledRows {
    fn new(fitted: &FittedObject<'_>, train: &FittedMatrix, scale: Vec<f64>) -> Result<Self, LoadError> {
        fitted.spend(train.values.len())?;
        let scale = if scale.len() == 1 { vec![scale[0]; train.columns] } else { scale };
        fitted.check_count("length_scale", train.columns, scale.len())?;
        let rows = train.values.chunks_exact(train.columns).flat_map(|row| divided(row, &scale)).collect();
        Ok(Self { rows, scale })
    }

    /// Returns the squared distance to each row of the fit.
    fn squares(&self, x: &[f64]) -> Vec<f64> {
        let x: Vec<f64> = divided(x, &self.scale).collect();
        wide(
            #[inline(always)]
            || self.rows.chunks_exact(x.len()).map(|row| lanes(&x, row, |x, y| (x - y) * (x - y))).collect(),
        )
    }
}

fn divided(row: &[f64], scale: &[f64]) -> impl Iterator<Item = f64> {
    row.iter().zip(scale).map(|(value, scale)| value / scale)
}

impl Shape {
    fn of(self, square: f64) -> f64 {
        match self {
            Self::Gaussian => (-0.5 * square).exp(),
            Self::Matern1 => (-square.sqrt()).exp(),
            Self::Matern3 => {
                let distance = square.sqrt() * 3.0_f64.sqrt();
                (1.0 + distance) * (-distance).exp()
            }
            Self::Matern5 => {
                let distance = square.sqrt() * 5.0_f64.sqrt();
                (1.0 + distance + distance * distance / 3.0) * (-distance).exp()
            }
            Self::RationalQuadratic { alpha, length } => {
                (1.0 + square / (2.0 * alpha * (length * length))).powf(-alpha)
            }
            Self::ExpSineSquared { period, length } => {
                let sine = (std::f64::consts::PI / period * square.sqrt()).sin() / length;
                (-2.0 * (sine * sine)).exp()
            }
        }
    }
}

impl GaussianKernel {
    /// Reads the fitted kernel of a process over the rows of its fit.
    pub(super) fn read(fitted: &FittedObject<'_>, train: &FittedMatrix) -> Result<Self, LoadError> {
        Self::part(fitted, "kernel_", train, 0)
    }

    fn part(
        owner: &FittedObject<'_>,
        attribute: &'static str,
        train: &FittedMatrix,
        depth: usize,
    ) -> Result<Self, LoadError> {
        if depth == MAX_NESTING {
            return Err(LoadError::Nesting { limit: MAX_NESTING });
        }
        // A kernel may be a part of others many times.
        owner.spend(64)?;
        let kernel = owner.part(owner.require(attribute)?)?;
        let nested = |attribute| Self::part(&kernel, attribute, train, depth + 1);
        let both = || Ok::<_, LoadError>(Box::new((nested("k1")?, nested("k2")?)));
        let number = |attribute| kernel.number(attribute);
        let scaled = |shape, scale| Ok(Self::Stationary(shape, ScaledRows::new(&kernel, train, scale)?));
        let whole = vec![1.0];
        match kernel.class().strip_prefix("sklearn.gaussian_process.kernels.") {
            Some("ConstantKernel") => Ok(Self::Constant(number("constant_value")?)),
            Some("WhiteKernel") => Ok(Self::White(number("noise_level")?)),
            Some("RBF") => scaled(Shape::Gaussian, kernel.floats("length_scale")?),
            Some("Matern") => {
                // Others need Bessel functions.
                let nu = number("nu")?;
                let shapes = [
                    (0.5, Shape::Matern1),
                    (1.5, Shape::Matern3),
                    (2.5, Shape::Matern5),
                    (f64::INFINITY, Shape::Gaussian),
                ];
                let shape = shapes.into_iter().find(|(known, _)| known.total_cmp(&nu).is_eq());
                let (_, shape) = shape.ok_or_else(|| kernel.unsupported("nu"))?;
                scaled(shape, kernel.floats("length_scale")?)
            }
            Some("RationalQuadratic") => {
                let (alpha, length) = (number("alpha")?, number("length_scale")?);
                scaled(Shape::RationalQuadratic { alpha, length }, whole)
            }
            Some("ExpSineSquared") => {
                let (period, length) = (number("periodicity")?, number("length_scale")?);
                scaled(Shape::ExpSineSquared { period, length }, whole)
            }
            Some("DotProduct") => {
                let sigma = number("sigma_0")?;
                kernel.spend(train.values.len())?;
                Ok(Self::Inner { rows: train.values.clone(), added: sigma * sigma })
            }
            Some("Sum") => Ok(Self::Sum(both()?)),
            Some("Product") => Ok(Self::Product(both()?)),
            Some("Exponentiation") => Ok(Self::Power(Box::new(nested("kernel")?), number("exponent")?)),
            _ => Err(LoadError::Parameter {
                class: owner.class().to_owned(),
                parameter: attribute,
                value: kernel.class().to_owned(),
            }),
        }
    }

    /// Returns the kernels of a row with each of the `count` rows of the fit.
    pub(super) fn of(&self, x: &[f64], count: usize) -> Vec<f64> {
        match self {
            Self::Constant(value) => vec![*value; count],
            Self::White(_) => vec![0.0; count],
            Self::Stationary(shape, rows) => {
                let mut kernels = rows.squares(x);
                for kernel in &mut kernels {
                    *kernel = shape.of(*kernel);
                }
                kernels
            }
            Self::Inner { rows, added } => rows.chunks_exact(x.len()).map(|row| dot(x, row) + added).collect(),
            Self::Sum(both) => combined(both.0.of(x, count), &both.1.of(x, count), |one, other| one + other),
            Self::Product(both) => combined(both.0.of(x, count), &both.1.of(x, count), |one, other| one * other),
            Self::Power(kernel, exponent) => {
                let mut kernels = kernel.of(x, count);
                for kernel in &mut kernels {
                    *kernel = kernel.powf(*exponent);
                }
                kernels
            }
        }
    }

    /// Returns the kernel of a row with itself.
    pub(super) fn variance(&self, x: &[f64]) -> f64 {
        match self {
            Self::Constant(value) | Self::White(value) => *value,
            Self::Stationary(..) => 1.0,
            Self::Inner { added, .. } => dot(x, x) + added,
            Self::Sum(both) => both.0.variance(x) + both.1.variance(x),
            Self::Product(both) => both.0.variance(x) * both.1.variance(x),
            Self::Power(kernel, exponent) => kernel.variance(x).powf(*exponent),
        }
    }

    /// Estimates the time for one row, in nanoseconds.
    pub(super) fn cost(&self, count: usize) -> u64 {
        match self {
            Self::Constant(_) | Self::White(_) => count as u64 / 4,
            Self::Stationary(_, rows) => rows.rows.len() as u64 / 2 + 20 * count as u64,
            Self::Inner { rows, .. } => rows.len() as u64 / 2,
            Self::Sum(both) | Self::Product(both) => both.0.cost(count) + both.1.cost(count),
            Self::Power(kernel, _) => kernel.cost(count) + 20 * count as u64,
        }
    }
}

fn combined(mut one: Vec<f64>, other: &[f64], of: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    one.iter_mut().zip(other).for_each(|(one, &other)| *one = of(*one, other));
    one
}
