//! Vectorizers, which count the terms of texts, and the TF-IDF weights of counts.

use std::collections::HashMap;
use std::sync::Arc;

use super::tokenizing::{self, Analyzer};
use crate::pickle::PickleValue;
use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::{ClassTable, EstimatorSpec};
use crate::table::{Elements, NumericType, SparseRows, TableData};

pub(in crate::sklearn) const CLASSES: ClassTable = &[
    ("feature_extraction.CountVectorizer", count),
    ("feature_extraction.HashingVectorizer", hashing),
    ("feature_extraction.TfidfTransformer", weights),
    ("feature_extraction.TfidfVectorizer", weighted_count),
];

/// Counts terms and applies weights to the counts.
#[derive(Debug)]
struct Vectorizer {
    analyzer: Analyzer,
    columns: TermColumns,
    /// Whether a term counts once, however often it occurs.
    binary: bool,
    numeric: NumericType,
    weights: Option<TfidfWeights>,
}

/// Maps terms to columns.
#[derive(Debug)]
enum TermColumns {
    Vocabulary(HashMap<Box<str>, u32>),
    /// By hash. If `signed`, half of the terms count as -1.
    Hashed {
        count: u32,
        signed: bool,
    },
}

/// The weights that are applied to counts.
#[derive(Debug, Clone)]
struct TfidfWeights {
    logarithmic: bool,
    /// The inverse document frequency of each term.
    idf: Option<Vec<f64>>,
    norm: Option<Norm>,
}

#[derive(Debug, Clone, Copy)]
enum Norm {
    Sum,
    Length,
}

impl Norm {
    fn read(fitted: &FittedObject<'_>) -> Result<Option<Self>, LoadError> {
        match fitted.text_if("norm") {
            Some("l1") => Ok(Some(Self::Sum)),
            Some("l2") => Ok(Some(Self::Length)),
            None if fitted.get("norm").is_none() => Ok(None),
            _ => Err(fitted.unsupported("norm")),
        }
    }

    fn of(self, cells: &[(usize, f64)]) -> f64 {
        match self {
            Self::Sum => cells.iter().map(|(_, value)| value.abs()).sum(),
            Self::Length => cells.iter().map(|(_, value)| value * value).sum::<f64>().sqrt(),
        }
    }
}

impl TfidfWeights {
    fn read(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        let idf = if fitted.flag("use_idf")? { Some(idf(fitted)?) } else { None };
        Ok(Self { logarithmic: fitted.flag("sublinear_tf")?, idf, norm: Norm::read(fitted)? })
    }

    fn columns(&self) -> Option<usize> {
        self.idf.as_ref().map(Vec::len)
    }

    fn apply(&self, cells: &mut [(usize, f64)]) {
        for (column, value) in cells.iter_mut() {
            if self.logarithmic {
                *value = value.ln() + 1.0;
            }
            if let Some(idf) = &self.idf {
                *value *= idf[*column];
            }
        }
        normalize(self.norm, cells);
    }
}

fn normalize(norm: Option<Norm>, cells: &mut [(usize, f64)]) {
    let Some(norm) = norm.map(|norm| norm.of(cells)).filter(|&norm| norm != 0.0) else { return };
    for (_, value) in cells.iter_mut() {
        *value /= norm;
    }
}

/// Reads the inverse document frequencies, which were the diagonal of a matrix before 1.5.
fn idf(fitted: &FittedObject<'_>) -> Result<Vec<f64>, LoadError> {
    if fitted.get("idf_").is_some() {
        return fitted.floats("idf_");
    }
    let diagonal = fitted.part(fitted.require("_idf_diag")?)?;
    let idf = diagonal.floats("data")?;
    let sizes = diagonal.items("_shape")?.into_iter().map(PickleValue::as_i64).collect::<Vec<_>>();
    let count = i64::try_from(idf.len()).ok();
    if sizes == [count, count] { Ok(idf) } else { Err(fitted.unexpected("_idf_diag", "a diagonal without zeros")) }
}

fn count(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    counter(fitted, None)
}

fn weighted_count(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let weights = TfidfWeights::read(&fitted.part(fitted.require("_tfidf")?)?)?;
    counter(fitted, Some(weights))
}

fn counter(fitted: &FittedObject<'_>, weights: Option<TfidfWeights>) -> Result<EstimatorSpec, LoadError> {
    let analyzer = Analyzer::read(fitted)?;
    let vocabulary = tokenizing::vocabulary(fitted)?;
    if let Some(columns) = weights.as_ref().and_then(TfidfWeights::columns) {
        fitted.check_count("vocabulary_", columns, vocabulary.len())?;
    }
    let numeric = fitted.dtype("dtype")?;
    let binary = fitted.flag("binary")?;
    let columns = TermColumns::Vocabulary(vocabulary);
    Ok(texts(Vectorizer { analyzer, columns, binary, numeric, weights }))
}

fn hashing(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let analyzer = Analyzer::read(fitted)?;
    let count =
        u32::try_from(fitted.size("n_features")?).ok().filter(|&count| count > 0 && i32::try_from(count).is_ok());
    let count = count.ok_or_else(|| fitted.unsupported("n_features"))?;
    let columns = TermColumns::Hashed { count, signed: fitted.flag("alternate_sign")? };
    let weights = Some(TfidfWeights { logarithmic: false, idf: None, norm: Norm::read(fitted)? });
    let (binary, numeric) = (fitted.flag("binary")?, fitted.dtype("dtype")?);
    Ok(texts(Vectorizer { analyzer, columns, binary, numeric, weights }))
}

fn texts(vectorizer: Vectorizer) -> EstimatorSpec {
    EstimatorSpec::composed(MethodSet::TRANSFORM, None, None, vectorizer).without_names()
}

impl TermColumns {
    fn count(&self) -> usize {
        match self {
            Self::Vocabulary(vocabulary) => vocabulary.len(),
            Self::Hashed { count, .. } => *count as usize,
        }
    }

    /// Returns the column of a term, and what one occurrence counts.
    fn find(&self, term: &str) -> Option<(u32, f64)> {
        match self {
            Self::Vocabulary(vocabulary) => vocabulary.get(term).map(|&column| (column, 1.0)),
            Self::Hashed { count, signed } => {
                let hash = tokenizing::murmur(term);
                let column = hash.unsigned_abs() % count;
                // The absolute value of the smallest number overflows; the original works around that, too.
                let column = if hash == i32::MIN { (i32::MAX.unsigned_abs() - (count - 1)) % count } else { column };
                Some((column, if *signed && hash < 0 { -1.0 } else { 1.0 }))
            }
        }
    }
}

impl Vectorizer {
    /// Returns the nonzero columns of a text, in ascending order.
    fn cells(&self, text: &str) -> Vec<(usize, f64)> {
        let mut counts: HashMap<u32, f64> = HashMap::new();
        self.analyzer.terms(text, |term| {
            if let Some((column, one)) = self.columns.find(term) {
                *counts.entry(column).or_default() += one;
            }
        });
        let mut cells: Vec<(usize, f64)> = counts.into_iter().map(|(column, count)| (column as usize, count)).collect();
        cells.sort_unstable_by_key(|&(column, _)| column);
        if self.binary {
            for (_, count) in &mut cells {
                *count = 1.0;
            }
        }
        if let Some(weights) = &self.weights {
            weights.apply(&mut cells);
        }
        cells
    }
}

impl Evaluate for Vectorizer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let wanted = || PredictError::NotText { class: Arc::clone(&info.class) };
        if data.columns() != 1 || matches!(data, TableData::Sparse(_)) {
            return Err(wanted());
        }
        let Elements::Text(texts) = data.column(0) else { return Err(wanted()) };
        let mut counts = SparseRows::new(self.columns.count(), self.numeric);
        for text in texts {
            counts.push_row(self.cells(&text).into_iter());
        }
        Ok(TableData::Sparse(counts))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        // The cost depends on the length of the text; this is for one of some hundred words.
        20_000
    }
}

/// Applies weights to counts.
#[derive(Debug)]
struct TfidfTransformer {
    weights: TfidfWeights,
}

fn weights(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let weights = TfidfWeights::read(fitted)?;
    let features = weights.columns();
    Ok(EstimatorSpec::composed(MethodSet::TRANSFORM, features, None, TfidfTransformer { weights }))
}

impl Evaluate for TfidfTransformer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let mut result;
        if let TableData::Sparse(sparse) = data {
            info.finite_sparse(sparse)?;
            let numeric = if sparse.numeric() == NumericType::F32 { NumericType::F32 } else { NumericType::F64 };
            result = SparseRows::new(sparse.columns(), numeric);
            for row in 0..sparse.rows() {
                let mut cells: Vec<_> = sparse.row(row).collect();
                self.weights.apply(&mut cells);
                result.push_row(cells.into_iter());
            }
        } else {
            let x = info.finite(data)?;
            let numeric = if x.is_single() { NumericType::F32 } else { NumericType::F64 };
            result = SparseRows::new(x.columns, numeric);
            for row in x.to_f64().chunks_exact(x.columns.max(1)) {
                let cells = row.iter().copied().enumerate().filter(|(_, value)| *value != 0.0);
                let mut cells: Vec<_> = cells.collect();
                self.weights.apply(&mut cells);
                result.push_row(cells.into_iter());
            }
        }
        Ok(TableData::Sparse(result))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        100 + self.weights.columns().unwrap_or(0) as u64
    }
}
