//! Encoders of categories.

use std::sync::Arc;

use super::categories::{self, Categories};
use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{EstimatorInfo, Evaluate};
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::EstimatorSpec;
use crate::table::{DenseTable, NumericType, SparseRows, TableData};

/// Creates the error for a value that is not among the categories.
fn unknown(info: &EstimatorInfo, column: usize) -> PredictError {
    PredictError::UnknownCategory { class: Arc::clone(&info.class), column }
}

/// Encodes a column as one column for each category.
#[derive(Debug)]
struct OneHotEncoder {
    columns: Vec<OneHotColumn>,
    width: usize,
    numeric: NumericType,
    sparse: bool,
}

#[derive(Debug)]
struct OneHotColumn {
    categories: Categories,
    /// The output column of each category, or `None` for a dropped one.
    places: Vec<Option<usize>>,
    unknown: UnknownHandling,
}

/// How a value is encoded that is not among the categories.
#[derive(Debug, Clone, Copy)]
enum UnknownHandling {
    Error,
    /// As all zeros, or as an infrequent category.
    Place(Option<usize>),
}

pub(super) fn one_hot(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let all = categories::read_all(fitted)?;
    let count = all.len();
    let mappings = infrequent(fitted, count)?;
    let drops = dropped(fitted, count)?;
    let handle = fitted.text("handle_unknown")?;
    let mut columns = Vec::with_capacity(count);
    let mut start = 0;
    for ((categories, mapping), (drop, after_grouping)) in all.into_iter().zip(mappings).zip(drops) {
        let wanted = || fitted.unexpected("categories_", "a group for each category");
        let group = |category: usize| match &mapping {
            Some(groups) => groups.get(category).and_then(|&group| usize::try_from(group).ok()),
            None => Some(category),
        };
        let groups: Vec<usize> = (0..categories.len()).map(group).collect::<Option<_>>().ok_or_else(wanted)?;
        let width = groups.iter().max().map_or(0, |last| last + 1);
        if width > categories.len() {
            return Err(wanted());
        }
        let drop = if after_grouping { drop } else { drop.and_then(|drop| groups.get(drop).copied()) };
        let place = |group: usize| match drop {
            Some(drop) if group == drop => None,
            Some(drop) if group > drop => Some(start + group - 1),
            _ => Some(start + group),
        };
        // The infrequent categories are the last group.
        let rare = mapping.as_ref().and_then(|_| place(width.checked_sub(1)?));
        let unknown = match handle {
            "error" => UnknownHandling::Error,
            "ignore" => UnknownHandling::Place(None),
            "infrequent_if_exist" | "warn" => UnknownHandling::Place(rare),
            _ => return Err(fitted.unsupported("handle_unknown")),
        };
        let places = groups.into_iter().map(place).collect();
        columns.push(OneHotColumn { categories, places, unknown });
        start += width - usize::from(drop.is_some_and(|drop| drop < width));
    }
    // The parameter was called `sparse` before 1.2.
    let sparse = match fitted.get("sparse_output") {
        Some(_) => fitted.flag("sparse_output")?,
        None => fitted.flag("sparse")?,
    };
    let numeric = fitted.dtype("dtype")?;
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, count, OneHotEncoder { columns, width: start, numeric, sparse }))
}

/// Reads the group of each category for all columns with infrequent categories, which are grouped.
fn infrequent(fitted: &FittedObject<'_>, columns: usize) -> Result<Vec<Option<Vec<i64>>>, LoadError> {
    if !fitted.flag("_infrequent_enabled")? {
        return Ok(vec![None; columns]);
    }
    categories::integers_of_columns(fitted, "_default_to_infrequent_mappings", columns)
}

/// Reads what is dropped from each column, and whether it is an index of groups rather than categories.
fn dropped(fitted: &FittedObject<'_>, columns: usize) -> Result<Vec<(Option<usize>, bool)>, LoadError> {
    // Since 1.2 the public attribute and the one that is used for computing are separate.
    let (attribute, after_grouping) = if fitted.value().attribute("_drop_idx_after_grouping").is_some() {
        ("_drop_idx_after_grouping", true)
    } else {
        ("drop_idx_", fitted.version() >= SklearnVersion(1, 1))
    };
    if fitted.get(attribute).is_none() {
        return Ok(vec![(None, after_grouping); columns]);
    }
    let wanted = || fitted.unexpected(attribute, "indices of categories");
    let items = fitted.integers_or_none(attribute)?;
    fitted.check_count(attribute, columns, items.len())?;
    let drop = |item: Option<i64>| match item {
        None => Ok((None, after_grouping)),
        Some(place) => Ok((Some(usize::try_from(place).map_err(|_| wanted())?), after_grouping)),
    };
    items.into_iter().map(drop).collect()
}

impl Evaluate for OneHotEncoder {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let rows = data.rows();
        let mut places = Vec::with_capacity(self.columns.len());
        for (index, column) in self.columns.iter().enumerate() {
            let found = column.categories.find(&data.column(index));
            let place = |category: Option<usize>| match (category, column.unknown) {
                (Some(category), _) => Ok(column.places[category]),
                (None, UnknownHandling::Place(place)) => Ok(place),
                (None, UnknownHandling::Error) => Err(unknown(info, index)),
            };
            places.push(found.into_iter().map(place).collect::<Result<Vec<_>, _>>()?);
        }
        let mut result = SparseRows::new(self.width, self.numeric);
        for row in 0..rows {
            result.push_row(places.iter().filter_map(|column| column[row]).map(|place| (place, 1.0)));
        }
        Ok(if self.sparse { TableData::Sparse(result) } else { TableData::Table(result.table(0..rows)) })
    }

    fn cost(&self) -> u64 {
        100 + 40 * self.columns.len() as u64 + if self.sparse { 0 } else { self.width as u64 }
    }
}

/// Encodes each category as a number.
#[derive(Debug)]
struct OrdinalEncoder {
    columns: Vec<OrdinalColumn>,
    numeric: NumericType,
}

#[derive(Debug)]
struct OrdinalColumn {
    categories: Categories,
    codes: Vec<f64>,
    /// The code of unknown categories. `None` makes them an error.
    unknown: Option<f64>,
}

pub(super) fn ordinal(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let all = categories::read_all(fitted)?;
    let count = all.len();
    let mappings = infrequent(fitted, count)?;
    let unknown = match fitted.text("handle_unknown")? {
        "error" => None,
        "use_encoded_value" => Some(fitted.number("unknown_value")?),
        _ => return Err(fitted.unsupported("handle_unknown")),
    };
    let missing = missing_places(fitted, count)?;
    let encoded_missing =
        if fitted.get("encoded_missing_value").is_some() { fitted.number("encoded_missing_value")? } else { f64::NAN };
    let mut columns = Vec::with_capacity(count);
    for ((categories, mapping), missing) in all.into_iter().zip(mappings).zip(missing) {
        #[expect(clippy::cast_precision_loss, reason = "places are small")]
        let code = |category: usize| {
            if missing == Some(category) {
                return Some(encoded_missing);
            }
            match &mapping {
                Some(groups) => groups.get(category).map(|&group| group as f64),
                None => Some(category as f64),
            }
        };
        let codes: Option<Vec<f64>> = (0..categories.len()).map(code).collect();
        let codes = codes.ok_or_else(|| fitted.unexpected("categories_", "a group for each category"))?;
        columns.push(OrdinalColumn { categories, codes, unknown });
    }
    let numeric = fitted.dtype("dtype")?;
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, count, OrdinalEncoder { columns, numeric }))
}

/// Reads which category of each column is the missing value.
fn missing_places(fitted: &FittedObject<'_>, columns: usize) -> Result<Vec<Option<usize>>, LoadError> {
    let mut places = vec![None; columns];
    let Some(missing) = fitted.get("_missing_indices") else { return Ok(places) };
    let wanted = || fitted.unexpected("_missing_indices", "indices of categories by column");
    for (column, category) in missing.entries().ok_or_else(wanted)? {
        let place =
            |value: crate::pickle::PickleValue<'_>| value.as_i64().and_then(|value| usize::try_from(value).ok());
        let (column, category) = (place(column).ok_or_else(wanted)?, place(category).ok_or_else(wanted)?);
        *places.get_mut(column).ok_or_else(wanted)? = Some(category);
    }
    Ok(places)
}

impl Evaluate for OrdinalEncoder {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let (rows, columns) = (data.rows(), self.columns.len());
        let mut values = vec![0.0; rows * columns];
        for (index, column) in self.columns.iter().enumerate() {
            let slots = values.iter_mut().skip(index).step_by(columns);
            for (slot, category) in slots.zip(column.categories.find(&data.column(index))) {
                *slot = match category {
                    Some(category) => column.codes[category],
                    None => column.unknown.ok_or_else(|| unknown(info, index))?,
                };
            }
        }
        Ok(TableData::Table(DenseTable { elements: self.numeric.elements(values), rows, columns }))
    }

    fn cost(&self) -> u64 {
        50 + 40 * self.columns.len() as u64
    }
}

/// Encodes each category as the average of the target.
#[derive(Debug)]
struct TargetEncoder {
    columns: Vec<Categories>,
    /// The average of each category: for each column or, with more than two classes, for each column and class.
    encodings: Vec<Vec<f64>>,
    /// The average for unknown categories, for each class if there are more than two.
    means: Vec<f64>,
}

pub(super) fn target(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let columns = categories::read_all(fitted)?;
    let means = fitted.floats("target_mean_")?;
    let encodings = fitted.items("encodings_")?;
    if means.is_empty() {
        return Err(fitted.unexpected("target_mean_", "an average"));
    }
    fitted.check_count("encodings_", columns.len().saturating_mul(means.len()), encodings.len())?;
    let encoding = |(index, value): (usize, crate::pickle::PickleValue<'_>)| {
        let encoding = fitted.matrix_of("encodings_", value)?.values;
        fitted.check_count("encodings_", columns[index / means.len()].len(), encoding.len())?;
        Ok::<_, LoadError>(encoding)
    };
    let encodings = encodings.into_iter().enumerate().map(encoding).collect::<Result<_, LoadError>>()?;
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, columns.len(), TargetEncoder { columns, encodings, means }))
}

impl Evaluate for TargetEncoder {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let (classes, width) = (self.means.len(), self.encodings.len());
        let mut values = vec![0.0; data.rows() * width];
        for (index, categories) in self.columns.iter().enumerate() {
            let rows = values.chunks_exact_mut(width);
            for (slots, category) in rows.zip(categories.find(&data.column(index))) {
                for class in 0..classes {
                    let place = index * classes + class;
                    slots[place] = category.map_or(self.means[class], |category| self.encodings[place][category]);
                }
            }
        }
        Ok(TableData::Table(DenseTable::of_f64(values, width)))
    }

    fn cost(&self) -> u64 {
        50 + 40 * self.columns.len() as u64
    }
}
