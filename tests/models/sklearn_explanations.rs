//! Contributions of scikit-learn's tree models, against `tests/goldens/sklearn/explained`.

#![expect(clippy::unwrap_used, reason = "a test that finds its files damaged has failed")]

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use mlserver::evaluators::sklearn::{FittedEstimator, PredictError};
use mlserver::evaluators::trees::{EnsembleOutput, PredictedValues, Prediction};
use serde::Deserialize;

use super::sklearn::{CaseWithModel, golden_cases};
use crate::support::goldens::golden_archives;

/// The allowed difference to the definition, as a part of the largest contribution, with and without single precision.
const SINGLE: f64 = 1e-5;
const DOUBLE: f64 = 1e-10;

#[derive(Deserialize)]
struct Explained {
    family: String,
    name: String,
    oracle: String,
    /// Rows, sums, features + 1. `null` if the model has no contributions.
    shape: Option<[usize; 3]>,
    contributions: Option<Vec<f64>>,
    leaf: Option<Vec<i32>>,
}

#[test]
fn sklearn_contributions_agree_with_the_definition_and_others_are_refused() {
    let expected: HashMap<(String, String), Explained> = golden_archives("sklearn/explained")
        .iter()
        .flat_map(|archive| {
            let lines = std::str::from_utf8(archive.file("explained.jsonl")).unwrap().lines();
            let read = |line| {
                let explained: Explained = serde_json::from_str(line).unwrap();
                ((archive.name.clone(), format!("{}/{}", explained.family, explained.name)), explained)
            };
            lines.map(read).collect::<Vec<_>>()
        })
        .collect();
    let skops = golden_archives("sklearn/skops");
    let (mut failures, mut refused, mut in_skops) = (Vec::new(), 0, 0);
    let mut oracles: HashMap<String, usize> = HashMap::new();
    for case in golden_cases().into_iter().filter(|case| case.case.refused.is_none()) {
        let id = (case.version.clone(), format!("{}/{}", case.family, case.case.name));
        let model = FittedEstimator::load(case.model.clone().into()).unwrap();
        let checked = if let Some(expected) = expected.get(&id) {
            *oracles.entry(expected.oracle.clone()).or_default() += 1;
            let file = format!("{}.skops", id.1);
            let skops = skops.iter().find(|archive| archive.name == id.0 && archive.has(&file));
            let same = skops.map(|archive| FittedEstimator::load(archive.file(&file).to_vec().into()).unwrap());
            in_skops += usize::from(same.is_some());
            check(&model, &case, expected).and_then(|()| same.map_or(Ok(()), |same| check(&same, &case, expected)))
        } else {
            refused += 1;
            check_refusal(&model, &case)
        };
        if let Err(difference) = checked {
            failures.push(format!("{} of {}: {difference}", id.1, id.0));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(oracles.values().sum::<usize>(), expected.len(), "{oracles:?}");
    for (oracle, least) in [("subsets", 100), ("subsets, shap", 70), ("xgboost", 50), ("lightgbm", 50)] {
        assert!(oracles[oracle] >= least, "{oracles:?}");
    }
    assert!(refused > 500 && in_skops > 10, "{refused}, {in_skops}");
}

fn check(model: &FittedEstimator, case: &CaseWithModel, expected: &Explained) -> Result<(), String> {
    let explanation = model.explanation().map_err(|reason| reason.to_string())?;
    let input = &case.case.asked[0].input;
    let Some([count, sums, width]) = expected.shape else {
        let error = explain(model, EnsembleOutput::Contributions, case, 0, 1).unwrap_err();
        let is_named = matches!(error, PredictError::NoContributions { .. }) && model.check_contributions().is_err();
        return if is_named { Ok(()) } else { Err(error.to_string()) };
    };
    model.check_contributions().map_err(|error| error.to_string())?;
    if (explanation.sums, explanation.features + 1) != (sums, width) || count > input.rows() {
        return Err(format!("{explanation:?} instead of {:?}", expected.shape));
    }
    let wanted = expected.contributions.as_ref().unwrap();
    let largest = wanted.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    let tolerance = largest * if explanation.is_single { SINGLE } else { DOUBLE };
    for (start, count) in std::iter::once((0, count)).chain((0..count).map(|row| (row, 1))) {
        let found = |output| explain(model, output, case, start, count).map_err(|error| error.to_string());
        let contributions = floats(found(EnsembleOutput::Contributions)?, explanation.is_single, sums * width)?;
        let wanted = &wanted[start * sums * width..(start + count) * sums * width];
        let is_off = |(found, wanted): (&f64, &f64)| found.is_nan() || (found - wanted).abs() > tolerance;
        if let Some(at) = contributions.iter().zip(wanted).position(is_off) {
            let (found, wanted) = (contributions[at], wanted[at]);
            return Err(format!("value {at} of {count} rows from {start} is {found} instead of {wanted}"));
        }
        let margins = floats(found(EnsembleOutput::Margin)?, explanation.is_single, sums)?;
        for (contributions, margin) in contributions.chunks_exact(width).zip(&margins) {
            let sum: f64 = contributions.iter().sum();
            if (sum - margin).abs() > tolerance.max(1e-12) {
                return Err(format!("contributions add up to {sum} instead of {margin}"));
            }
        }
        let Some(leaf) = &expected.leaf else {
            if explanation.leaves.is_some() || found(EnsembleOutput::Leaf).is_ok() {
                return Err("has leaves, which the library has not".to_owned());
            }
            continue;
        };
        let columns = explanation.leaves.ok_or("has no leaves")?.iter().product::<usize>();
        let Prediction { values: PredictedValues::I32(values), columns: found } = found(EnsembleOutput::Leaf)? else {
            return Err("numbers of leaves are not INT32".to_owned());
        };
        if columns != found || leaf[start * columns..(start + count) * columns] != values {
            return Err(format!("leaves {values:?} of {count} rows from {start}"));
        }
    }
    Ok(())
}

/// Models without an expectation refuse all three outputs, with a sentence that names the class.
fn check_refusal(model: &FittedEstimator, case: &CaseWithModel) -> Result<(), String> {
    if model.explanation().is_ok() || model.explained_names().is_some() || model.check_contributions().is_ok() {
        return Err("explains itself, without an expectation".to_owned());
    }
    for output in [EnsembleOutput::Contributions, EnsembleOutput::Margin, EnsembleOutput::Leaf] {
        let error = explain(model, output, case, 0, 1).unwrap_err();
        if !matches!(error, PredictError::Unexplained { .. }) {
            return Err(error.to_string());
        }
    }
    Ok(())
}

fn explain(
    model: &FittedEstimator,
    output: EnsembleOutput,
    case: &CaseWithModel,
    start: usize,
    count: usize,
) -> Result<Prediction, PredictError> {
    let data = case.case.asked[0].input.data(start, count);
    let stopped = model.explain(output, &data, &AtomicBool::new(true));
    assert!(stopped.is_err(), "{output:?} does not stop");
    model.explain(output, &data, &AtomicBool::new(false))
}

fn floats(found: Prediction, is_single: bool, columns: usize) -> Result<Vec<f64>, String> {
    match found.values {
        _ if found.columns != columns => Err(format!("{} columns instead of {columns}", found.columns)),
        PredictedValues::F32(values) if is_single => Ok(values.into_iter().map(f64::from).collect()),
        PredictedValues::F64(values) if !is_single => Ok(values),
        other => Err(format!("another type: {other:?}")),
    }
}
