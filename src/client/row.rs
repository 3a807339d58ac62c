//! The result of a row, and its line in the output.

use serde_json::{Map, Value, json};

use super::openai_batch::{self, BatchOutcome};
use super::topic::{RecordOrigin, RecordOrigins};
use crate::remote::OpenAiAnswer;
use crate::types::json::{NonFinite, WriteOptions, write_response};
use crate::types::{InferenceResponse, Tensor};

/// The start of every line that reports a failure, and of no other line.
pub(super) const FAILURE_PREFIX: &[u8] = b"{\"parameters\":";

/// The start of every line that has an answer.
pub(super) const ANSWER_PREFIX: &[u8] = b"{\"model_name\":";

/// A row that is not a valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidRow {
    /// Its position in the batch.
    pub(super) position: usize,
    pub(super) id: Option<String>,
    pub(super) message: String,
}

/// The stage at which a row failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureStage {
    /// The row is not a valid request.
    Preprocessing,
    /// The server did not answer the request.
    Inference,
    /// The answer cannot be written as JSON.
    Postprocessing,
    /// Two servers gave different answers.
    Comparison,
}

impl FailureStage {
    /// Returns the name that output lines have, which is the original's if it has the stage.
    const fn name(self) -> &'static str {
        match self {
            Self::Preprocessing => "preprocessing error",
            Self::Inference => "inference error",
            Self::Postprocessing => "postprocessing error",
            Self::Comparison => "answers differ",
        }
    }

    /// Returns the code in the lines of OpenAI's batch files.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Preprocessing => "invalid_request",
            Self::Inference | Self::Postprocessing | Self::Comparison => "request_failed",
        }
    }
}

/// The result of a row.
#[derive(Debug)]
pub(super) struct RowResult {
    pub(super) id: Option<String>,
    pub(super) outcome: Result<RowAnswer, RowFailure>,
}

#[derive(Debug)]
pub(super) enum RowAnswer {
    Inference {
        response: InferenceResponse,
        /// The id of the request that contained the row.
        inference_id: String,
    },
    /// The answer to a row of one of OpenAI's batch files.
    OpenAi(OpenAiAnswer),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowFailure {
    pub(super) stage: FailureStage,
    pub(super) message: String,
    /// The server's status.
    pub(super) code: Option<String>,
    /// The server's response to a row of one of OpenAI's batch files.
    pub(super) answer: Option<Box<OpenAiAnswer>>,
}

impl RowFailure {
    /// Creates a failure that is not one of the server's.
    pub(super) const fn new(stage: FailureStage, message: String) -> Self {
        Self { stage, message, code: None, answer: None }
    }

    fn batch_outcome(&self) -> BatchOutcome<'_> {
        match &self.answer {
            Some(answer) => BatchOutcome::Refused(answer),
            None => BatchOutcome::Failed { code: self.stage.code(), message: &self.message },
        }
    }
}

/// A row's place in the input.
#[derive(Clone, Copy)]
struct RowPlace<'a> {
    index: u64,
    /// The record of a topic.
    record: Option<(&'a str, &'a RecordOrigin)>,
}

impl RowPlace<'_> {
    fn parameters(&self) -> Map<String, Value> {
        let mut parameters = Map::new();
        parameters.insert("batch_index".to_owned(), self.index.into());
        if let Some((topic, RecordOrigin { partition, offset, .. })) = self.record {
            parameters.insert("kafka_topic".to_owned(), topic.into());
            parameters.insert("kafka_partition".to_owned(), (*partition).into());
            parameters.insert("kafka_offset".to_owned(), (*offset).into());
        }
        parameters
    }
}

/// Writes the line of a row, or returns why the answer cannot be written.
fn write_answer(
    lines: &mut Vec<u8>,
    place: RowPlace<'_>,
    id: Option<String>,
    answered: RowAnswer,
) -> Result<(), String> {
    let (mut response, inference_id) = match answered {
        RowAnswer::Inference { response, inference_id } => (response, inference_id),
        RowAnswer::OpenAi(answer) => {
            openai_batch::write_line(lines, place.index, id.as_deref(), BatchOutcome::Answered(&answer));
            return Ok(());
        }
    };
    response.id = id.unwrap_or_default();
    let mut parameters = place.parameters();
    parameters.insert("inference_id".to_owned(), inference_id.into());
    for (key, value) in std::mem::take(&mut response.parameters.others).into_inner() {
        // The model's parameters do not override the row's index and request.
        parameters.entry(key).or_insert(value);
    }
    response.parameters.others = parameters.into();
    let has_infinity = response.outputs.iter().any(has_infinity);
    let non_finite = if has_infinity { NonFinite::String } else { NonFinite::Null };
    let written = write_response(&response, &WriteOptions { non_finite, ..WriteOptions::default() });
    lines.extend_from_slice(&written.map_err(|error| error.to_string())?.json);
    lines.push(b'\n');
    Ok(())
}

fn has_infinity(tensor: &Tensor) -> bool {
    tensor.elements::<f32>().is_some_and(|values| values.iter().any(|value| value.is_infinite()))
        || tensor.elements::<f64>().is_some_and(|values| values.iter().any(|value| value.is_infinite()))
}

fn write_failure(lines: &mut Vec<u8>, place: RowPlace<'_>, id: Option<String>, failed: &RowFailure) {
    let mut line = json!({"parameters": place.parameters()});
    let mut error = Map::new();
    error.insert("status".to_owned(), failed.stage.name().into());
    error.insert("msg".to_owned(), failed.message.clone().into());
    error.extend(failed.code.clone().map(|code| ("code".to_owned(), Value::String(code))));
    if let Some(line) = line.as_object_mut() {
        line.extend(id.map(|id| ("id".to_owned(), Value::String(id))));
        line.insert("error".to_owned(), Value::Object(error));
    }
    lines.extend_from_slice(line.to_string().as_bytes());
    lines.push(b'\n');
}

/// The lines of rows.
#[derive(Debug, Default)]
pub(super) struct WrittenLines {
    pub(super) lines: Vec<u8>,
    /// By index.
    pub(super) failures: Vec<(u64, RowFailure)>,
    /// The id of each row, if the lines become records.
    pub(super) ids: Vec<Option<String>>,
}

/// Which lines are written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LineRules {
    /// The limit on a record with its key and its id, if the lines become records.
    pub(super) record_limit: Option<usize>,
    /// Answered rows have no line.
    pub(super) only_failures: bool,
    /// Lines are those of OpenAI's batch files.
    pub(super) is_openai: bool,
}

/// Writes the lines of rows, the first of which is at index `first` of the input.
pub(super) fn write_lines(
    first: u64,
    rows: Vec<RowResult>,
    origins: Option<&RecordOrigins>,
    rules: LineRules,
) -> WrittenLines {
    let limit = rules.record_limit;
    let mut written = WrittenLines { lines: Vec::with_capacity(rows.len() * 256), ..WrittenLines::default() };
    for (position, (index, RowResult { id, outcome })) in (first..).zip(rows).enumerate() {
        let record = origins.and_then(|origins| Some((&*origins.topic, origins.records.get(position)?)));
        let (place, start) = (RowPlace { index, record }, written.lines.len());
        if limit.is_some() {
            written.ids.push(id.clone().filter(|id| !id.is_empty()));
        }
        let outcome = outcome.and_then(|answered| {
            if rules.only_failures {
                return Ok(());
            }
            let wrong = |message| RowFailure::new(FailureStage::Postprocessing, message);
            write_answer(&mut written.lines, place, id.clone(), answered).map_err(wrong)?;
            let key = record.and_then(|(_, record)| record.key.as_ref()).map_or(0, Vec::len);
            let size = written.lines.len() - start + key + id.as_ref().map_or(0, String::len);
            let Some(limit) = limit.filter(|limit| size > *limit) else { return Ok(()) };
            written.lines.truncate(start);
            Err(wrong(format!(
                "the answer has {size} bytes, over the limit of {limit} on a record (--kafka-config message.max.bytes=BYTES raises \
                 it, if the topic allows that)"
            )))
        });
        if let Err(failed) = outcome {
            if rules.is_openai {
                openai_batch::write_line(&mut written.lines, index, id.as_deref(), failed.batch_outcome());
            } else {
                write_failure(&mut written.lines, place, id, &failed);
            }
            written.failures.push((index, failed));
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BytesElements, Datatype, Parameters, TensorData};

    fn answered(outputs: Vec<Tensor>, parameters: &Value) -> RowAnswer {
        let parameters = Parameters::from(parameters.as_object().unwrap().clone());
        let response =
            InferenceResponse { model_name: "m".to_owned(), parameters, outputs, ..InferenceResponse::default() };
        RowAnswer::Inference { response, inference_id: "r".to_owned() }
    }

    #[test]
    fn write_lines_matches_the_original() {
        let total = Tensor::from_elements("t", vec![1], &[6_i64]).unwrap();
        let infinite = Tensor::from_elements("f", vec![2], &[f64::INFINITY, f64::NAN]).unwrap();
        let nan = Tensor::from_elements("n", vec![1], &[f32::NAN]).unwrap();
        let failed = RowFailure::new(FailureStage::Inference, "no \"x\"".to_owned());
        let failed = RowFailure { code: Some("400".to_owned()), ..failed };
        let bad = RowFailure::new(FailureStage::Preprocessing, "not JSON".to_owned());
        let rows = vec![
            RowResult {
                id: Some("a".to_owned()),
                outcome: Ok(answered(vec![total], &json!({"batch_index": "x", "k": 1}))),
            },
            RowResult { id: Some("b".to_owned()), outcome: Err(failed) },
            RowResult { id: None, outcome: Err(bad) },
            RowResult { id: None, outcome: Ok(answered(vec![infinite, nan], &json!({}))) },
        ];
        let WrittenLines { lines, failures, ids } = write_lines(7, rows, None, LineRules::default());
        assert!(ids.is_empty());
        let expected = [
            r#"{"model_name":"m","id":"a","parameters":{"batch_index":7,"inference_id":"r","k":1},"outputs":[{"name":"t","shape":[1],"datatype":"INT64","data":[6]}]}"#,
            r#"{"parameters":{"batch_index":8},"id":"b","error":{"status":"inference error","msg":"no \"x\"","code":"400"}}"#,
            r#"{"parameters":{"batch_index":9},"error":{"status":"preprocessing error","msg":"not JSON"}}"#,
            r#"{"model_name":"m","id":"","parameters":{"batch_index":10,"inference_id":"r"},"outputs":[{"name":"f","shape":[2],"datatype":"FP64","data":["Infinity","NaN"]},{"name":"n","shape":[1],"datatype":"FP32","data":["NaN"]}]}"#,
        ];
        assert!(lines.starts_with(ANSWER_PREFIX));
        assert_eq!(String::from_utf8(lines).unwrap().lines().collect::<Vec<_>>(), expected);
        assert_eq!(failures.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [8, 9]);
    }

    #[test]
    fn write_lines_answer_without_json_form_is_a_failure() {
        let data = TensorData::Variable([[0xff_u8]].iter().collect::<BytesElements>());
        let (name, datatype, parameters) = ("t".to_owned(), Datatype::Bytes, Parameters::new());
        let tensor = Tensor { name, datatype, shape: vec![1], parameters, data, nested: false, as_sent: None };
        let rows = vec![RowResult { id: None, outcome: Ok(answered(vec![tensor], &json!({}))) }];
        let WrittenLines { lines, failures, .. } = write_lines(0, rows, None, LineRules::default());
        assert!(lines.starts_with(FAILURE_PREFIX) && lines.ends_with(b"}\n"));
        assert_eq!(failures[0].1.stage, FailureStage::Postprocessing);
    }

    #[test]
    fn write_lines_of_records_name_them_and_have_a_limit() {
        let row = |id: &str, count: usize| {
            let total = Tensor::from_elements("t", vec![count], &vec![6_i64; count]).unwrap();
            RowResult { id: Some(id.to_owned()), outcome: Ok(answered(vec![total], &json!({}))) }
        };
        let origin = |offset| RecordOrigin { partition: 3, offset, key: Some(vec![b'k'; 10]) };
        let origins = RecordOrigins { topic: "in".into(), records: vec![origin(5), origin(8)] };
        let rules = LineRules { record_limit: Some(400), ..LineRules::default() };
        let WrittenLines { lines, failures, ids } =
            write_lines(0, vec![row("a", 1), row("b", 500)], Some(&origins), rules);
        let lines: Vec<Value> =
            String::from_utf8(lines).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let place = |index: u64, offset: i64| json!({"batch_index": index, "kafka_topic": "in", "kafka_partition": 3, "kafka_offset": offset});
        let mut first = place(0, 5);
        first["inference_id"] = json!("r");
        assert_eq!((&lines[0]["parameters"], &lines[1]["parameters"]), (&first, &place(1, 8)));
        assert_eq!(ids, [Some("a".to_owned()), Some("b".to_owned())]);
        let message = lines[1]["error"]["msg"].as_str().unwrap();
        assert!(message.starts_with("the answer has ") && message.contains("over the limit of 400"), "{message}");
        assert_eq!(failures.len(), 1);
    }
}
