//! Scalers, `Normalizer` and `Binarizer`.

use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{EstimatorInfo, Evaluate, InverseTransform};
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::EstimatorSpec;
use crate::table::{DenseTable, Elements, FloatMatrix, FloatValues, NumericType, SparseRows, TableData, to_f32};

/// An operation of each number with the number of its column.
#[derive(Debug)]
enum ScalerStep {
    Subtract(ColumnOperand),
    Divide(ColumnOperand),
    Multiply(ColumnOperand),
    Add(ColumnOperand),
    /// Clips to a range.
    Clip(f64, f64),
}

/// One number for each column.
#[derive(Debug)]
struct ColumnOperand {
    values: Vec<f64>,
    /// Whether operations on single-precision input use single precision, with the number rounded to it first.
    /// Otherwise, each step is computed in double precision and rounded.
    single: bool,
}

/// Applies the same steps to every row.
#[derive(Debug)]
struct Scaler {
    steps: Vec<ScalerStep>,
    missing: bool,
}

/// Reads one number for each feature, if the scaler has the attribute.
fn column(
    fitted: &FittedObject<'_>,
    attribute: &'static str,
    features: usize,
) -> Result<Option<ColumnOperand>, LoadError> {
    if fitted.get(attribute).is_none() {
        return Ok(None);
    }
    let values = fitted.floats_of(attribute, features)?;
    // Found by comparing results: 1.5 and earlier keep double precision, as do all other scalers.
    let single = fitted.version() >= SklearnVersion(1, 8) && fitted.class().ends_with(".StandardScaler");
    Ok(Some(ColumnOperand { values, single }))
}

fn features(fitted: &FittedObject<'_>) -> Result<usize, LoadError> {
    fitted.size("n_features_in_")
}

fn scaler(fitted: &FittedObject<'_>, steps: Vec<ScalerStep>) -> Result<EstimatorSpec, LoadError> {
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features(fitted)?, Scaler { steps, missing: true }))
}

/// Returns the steps of a scaler that centers and scales. Parameters that a version does not have are off.
fn standard_steps(
    fitted: &FittedObject<'_>,
    center: (&'static str, &'static str),
    scale: (&'static str, &'static str),
) -> Result<Vec<ScalerStep>, LoadError> {
    let features = features(fitted)?;
    let mut steps = Vec::new();
    if fitted.flag(center.0)?
        && let Some(column) = column(fitted, center.1, features)?
    {
        steps.push(ScalerStep::Subtract(column));
    }
    if fitted.flag(scale.0)?
        && let Some(column) = column(fitted, scale.1, features)?
    {
        steps.push(ScalerStep::Divide(column));
    }
    Ok(steps)
}

pub(super) fn standard(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    scaler(fitted, standard_steps(fitted, ("with_mean", "mean_"), ("with_std", "scale_"))?)
}

pub(super) fn robust(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    scaler(fitted, standard_steps(fitted, ("with_centering", "center_"), ("with_scaling", "scale_"))?)
}

pub(super) fn min_max(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let features = features(fitted)?;
    let need = |attribute| column(fitted, attribute, features)?.ok_or_else(|| fitted.unexpected(attribute, "numbers"));
    let mut steps = vec![ScalerStep::Multiply(need("scale_")?), ScalerStep::Add(need("min_")?)];
    if fitted.flag("clip")? {
        let range = fitted.floats_of("feature_range", 2)?;
        if range[0].is_nan() || range[1].is_nan() || range[0] > range[1] {
            return Err(fitted.unexpected("feature_range", "a range"));
        }
        steps.push(ScalerStep::Clip(range[0], range[1]));
    }
    scaler(fitted, steps)
}

pub(super) fn max_abs(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let features = features(fitted)?;
    let scale = column(fitted, "scale_", features)?.ok_or_else(|| fitted.unexpected("scale_", "numbers"))?;
    let mut steps = vec![ScalerStep::Divide(scale)];
    if fitted.flag("clip")? {
        steps.push(ScalerStep::Clip(-1.0, 1.0));
    }
    scaler(fitted, steps)
}

impl ColumnOperand {
    fn each(&self, values: &mut [f64], columns: usize, apply: impl Fn(f64, f64) -> f64) {
        for row in values.chunks_exact_mut(columns) {
            row.iter_mut().zip(&self.values).for_each(|(value, &by)| *value = apply(*value, by));
        }
    }
}

impl ScalerStep {
    /// Undoes the step. Clipping cannot be undone and is skipped.
    fn undo_f64(&self, values: &mut [f64], columns: usize) {
        match self {
            Self::Subtract(column) => column.each(values, columns, |value, by| value + by),
            Self::Divide(column) => column.each(values, columns, |value, by| value * by),
            Self::Multiply(column) => column.each(values, columns, |value, by| value / by),
            Self::Add(column) => column.each(values, columns, |value, by| value - by),
            Self::Clip(..) => {}
        }
    }

    fn apply_f64(&self, values: &mut [f64], columns: usize) {
        match self {
            Self::Subtract(column) => column.each(values, columns, |value, by| value - by),
            Self::Divide(column) => column.each(values, columns, |value, by| value / by),
            Self::Multiply(column) => column.each(values, columns, |value, by| value * by),
            Self::Add(column) => column.each(values, columns, |value, by| value + by),
            Self::Clip(low, high) => {
                for value in values.iter_mut() {
                    *value = value.clamp(*low, *high);
                }
            }
        }
    }

    fn apply_f32(&self, values: &mut [f32], columns: usize) {
        let each = |column: &ColumnOperand, values: &mut [f32], apply: fn(f64, f64) -> f64| {
            for row in values.chunks_exact_mut(columns) {
                for (value, &by) in row.iter_mut().zip(&column.values) {
                    // One operation on two single-precision numbers, rounded once, is what single precision gives.
                    let by = if column.single { f64::from(to_f32(by)) } else { by };
                    *value = to_f32(apply(f64::from(*value), by));
                }
            }
        };
        match self {
            Self::Subtract(column) => each(column, values, |value, by| value - by),
            Self::Divide(column) => each(column, values, |value, by| value / by),
            Self::Multiply(column) => each(column, values, |value, by| value * by),
            Self::Add(column) => each(column, values, |value, by| value + by),
            Self::Clip(low, high) => {
                for value in values.iter_mut() {
                    *value = value.clamp(to_f32(*low), to_f32(*high));
                }
            }
        }
    }
}

impl Scaler {
    fn scale_sparse(&self, sparse: &SparseRows) -> SparseRows {
        let mut scaled = SparseRows::new(sparse.columns(), sparse.numeric().with(NumericType::F32));
        let single = scaled.numeric() == NumericType::F32;
        for row in 0..sparse.rows() {
            scaled.push_row(sparse.row(row).map(|(column, mut value)| {
                for step in &self.steps {
                    match step {
                        ScalerStep::Divide(by) => value /= by.values[column],
                        ScalerStep::Multiply(by) => value *= by.values[column],
                        ScalerStep::Subtract(_) | ScalerStep::Add(_) | ScalerStep::Clip(..) => {}
                    }
                    value = if single { f64::from(to_f32(value)) } else { value };
                }
                (column, value)
            }));
        }
        scaled
    }
}

impl Evaluate for Scaler {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        if let TableData::Sparse(sparse) = data {
            return Ok(TableData::Sparse(self.scale_sparse(sparse)));
        }
        let x = info.numbers(data, self.missing)?;
        let (rows, columns) = (x.rows, x.columns);
        let elements = match x.floats {
            FloatValues::F32(values) => {
                let mut values = values.into_owned();
                self.steps.iter().for_each(|step| step.apply_f32(&mut values, columns.max(1)));
                Elements::F32(values.into())
            }
            FloatValues::F64(values) => {
                let mut values = values.into_owned();
                self.steps.iter().for_each(|step| step.apply_f64(&mut values, columns.max(1)));
                Elements::F64(values.into())
            }
        };
        Ok(TableData::Table(DenseTable { elements, rows, columns }))
    }

    fn takes_sparse(&self) -> bool {
        // Subtracting or adding makes zeros nonzero.
        self.steps.iter().all(|step| matches!(step, ScalerStep::Divide(_) | ScalerStep::Multiply(_)))
    }

    fn cost(&self) -> u64 {
        let columns = |step: &ScalerStep| match step {
            ScalerStep::Subtract(column)
            | ScalerStep::Divide(column)
            | ScalerStep::Multiply(column)
            | ScalerStep::Add(column) => column.values.len(),
            ScalerStep::Clip(..) => 1,
        };
        50 + self.steps.iter().map(|step| columns(step) as u64).sum::<u64>()
    }

    fn inverse(&self) -> Option<&dyn InverseTransform> {
        Some(self)
    }
}

impl InverseTransform for Scaler {
    fn undo(&self, values: &mut [f64], columns: usize) {
        self.steps.iter().rev().for_each(|step| step.undo_f64(values, columns.max(1)));
    }
}

/// How long a row is.
#[derive(Debug, Clone, Copy)]
enum Norm {
    L1,
    L2,
    Max,
}

#[derive(Debug)]
struct Normalizer {
    norm: Norm,
    /// Whether rows that are almost of length zero are unchanged. Otherwise, only those of length zero are.
    almost: bool,
}

#[derive(Debug)]
struct Binarizer {
    threshold: f64,
}

pub(super) fn normalizer(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let norm = match fitted.text("norm")? {
        "l1" => Norm::L1,
        "l2" => Norm::L2,
        "max" => Norm::Max,
        _ => return Err(fitted.unsupported("norm")),
    };
    Ok(EstimatorSpec::new(
        MethodSet::TRANSFORM,
        features(fitted)?,
        Normalizer { norm, almost: fitted.version() >= SklearnVersion(1, 0) },
    ))
}

pub(super) fn binarizer(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let threshold = fitted.number("threshold")?;
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features(fitted)?, Binarizer { threshold }))
}

/// Applies a function to each row, and keeps shape and precision.
fn by_row(x: &FloatMatrix<'_>, apply: impl Fn(&mut [f64])) -> TableData<'static> {
    let (rows, columns) = (x.rows, x.columns);
    let mut values = x.to_f64().into_owned();
    values.chunks_exact_mut(columns.max(1)).for_each(apply);
    let elements = if x.is_single() {
        Elements::F32(values.into_iter().map(to_f32).collect())
    } else {
        Elements::F64(values.into())
    };
    TableData::Table(DenseTable { elements, rows, columns })
}

impl Normalizer {
    /// Sparse rows are divided by any length but zero.
    fn normalize_sparse(&self, sparse: &SparseRows) -> SparseRows {
        let mut result = SparseRows::new(sparse.columns(), sparse.numeric().with(NumericType::F32));
        for row in 0..sparse.rows() {
            let values = sparse.row(row).map(|(_, value)| value);
            let length = match self.norm {
                Norm::L1 => values.map(f64::abs).sum::<f64>(),
                Norm::L2 => values.map(|value| value * value).sum::<f64>().sqrt(),
                Norm::Max => values.map(f64::abs).fold(0.0, f64::max),
            };
            let length = if length == 0.0 { 1.0 } else { length };
            result.push_row(sparse.row(row).map(|(column, value)| (column, value / length)));
        }
        result
    }
}

impl Evaluate for Normalizer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        if let TableData::Sparse(sparse) = data {
            info.finite_sparse(sparse)?;
            return Ok(TableData::Sparse(self.normalize_sparse(sparse)));
        }
        let x = info.finite(data)?;
        let epsilon = if x.is_single() { f64::from(f32::EPSILON) } else { f64::EPSILON };
        let shortest = if self.almost { 10.0 * epsilon } else { 0.0 };
        Ok(by_row(&x, |row| {
            let absolute = row.iter().map(|value| value.abs());
            // Rounds as single precision does: the square of a small number may be zero.
            let round = |value: f64| if x.is_single() { f64::from(to_f32(value)) } else { value };
            let length = match self.norm {
                Norm::L1 => absolute.fold(0.0, |sum, value| round(sum + value)),
                Norm::L2 => round(row.iter().fold(0.0, |sum, value| round(sum + round(value * value))).sqrt()),
                Norm::Max => absolute.fold(0.0, f64::max),
            };
            let length = if length == 0.0 || length < shortest { 1.0 } else { length };
            for value in row.iter_mut() {
                *value /= length;
            }
        }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        200
    }
}

impl Evaluate for Binarizer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        if let TableData::Table(DenseTable { elements: Elements::Int(values, kind), rows, columns }) = data {
            #[expect(clippy::cast_precision_loss, reason = "as NumPy compares integers with a float")]
            let above = values.iter().map(|&value| i64::from(value as f64 > self.threshold));
            let elements = Elements::Int(above.collect(), *kind);
            return Ok(TableData::Table(DenseTable { elements, rows: *rows, columns: *columns }));
        }
        Ok(by_row(&x, |row| row.iter_mut().for_each(|value| *value = f64::from(u8::from(*value > self.threshold)))))
    }

    fn cost(&self) -> u64 {
        50
    }
}
