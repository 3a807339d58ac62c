//! `POST /invocations`: MLflow's own protocol, as its scoring server answers.

use std::fmt::Write;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::Model;
use super::csv;
use super::enforce::Refusal;
use super::evaluator::Answer;
use super::python::{self, Json, JsonError, repr_bytes, write_float, write_text};
use super::signature::{Input, Kind};
use super::values::{Array, Frame, Given, Label, Values, cast_column, infer};
use crate::evaluators::sklearn::{Elements, IntType};
use crate::types::CustomReply;

const FORMS: [&str; 4] = ["dataframe_records", "dataframe_split", "inputs", "instances"];
/// With one of these a request is meant for language models.
const LLM: [&str; 3] = ["messages", "prompt", "input"];

const ONE_FORM: &str = "The input must be a JSON dictionary with exactly one of the input fields {'dataframe_records', 'dataframe_split', 'inputs', 'instances'}";
const PROTOCOL_CHANGE: &str = "IMPORTANT: The MLflow Model scoring protocol has changed in MLflow version 2.0. If you are seeing this error, you are likely using an outdated scoring request format. To resolve the error, either update your request format or adjust your MLflow Model's requirements file to specify an older version of MLflow (for example, change the 'mlflow' requirement specifier to 'mlflow==1.30.0'). If you are making a request using the MLflow client (e.g. via `mlflow.pyfunc.spark_udf()`), upgrade your MLflow client to a version >= 2.0 in order to use the new request format. For more information about the updated MLflow Model scoring protocol in MLflow 2.0, see https://mlflow.org/docs/latest/models.html#deploy-mlflow-models.";
const UNEXPECTED: &str = "Encountered an unexpected error while evaluating the model. Verify that the serialized input Dataframe is compatible with the model for inference.";

/// Why a call is not answered with predictions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// 415, as a text.
    ContentType(String),
    /// The body cannot be read, or the model fails.
    BadRequest(String),
    /// The body is not what the signature says.
    Schema(String),
    /// The body cannot be read at all.
    Unreadable(String),
}

fn invalid(message: impl std::fmt::Display) -> Failure {
    Failure::BadRequest(format!("Invalid input. {message}"))
}

/// Answers a call.
pub(super) fn answer(model: &Model, content_type: &str, body: &[u8]) -> CustomReply {
    match predictions(model, content_type, body) {
        Ok(text) => reply(StatusCode::OK, "application/json", text),
        Err(failure) => {
            tracing::info!(model = model.name(), "A call of /invocations failed: {failure:?}");
            failure.reply()
        }
    }
}

/// Makes a reply of a text.
pub(super) fn reply(status: StatusCode, content_type: &'static str, text: String) -> CustomReply {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    CustomReply { status, headers, body: text.into() }
}

impl Failure {
    fn reply(self) -> CustomReply {
        let (code, message, state, class) = match self {
            Self::ContentType(text) => {
                return reply(StatusCode::UNSUPPORTED_MEDIA_TYPE, "text/plain; charset=utf-8", text);
            }
            Self::BadRequest(message) => ("BAD_REQUEST", message, "KAM00", "INVALID_PARAMETER_VALUE"),
            Self::Unreadable(message) => ("INVALID_PARAMETER_VALUE", message, "KAM00", "INVALID_PARAMETER_VALUE"),
            Self::Schema(message) => ("INVALID_PARAMETER_VALUE", message, "KAM01", "SCHEMA_ENFORCEMENT_FAILED"),
        };
        let mut text = format!("{{\"error_code\": \"{code}\", \"message\": ");
        write_text(&mut text, &message);
        let _ = write!(text, ", \"sqlstate\": \"{state}\", \"error_class\": \"{class}\"}}");
        reply(StatusCode::BAD_REQUEST, "application/json", text)
    }
}

fn predictions(model: &Model, content_type: &str, body: &[u8]) -> Result<String, Failure> {
    let given = read(&model.signature().input, content_type, body)?;
    let failed = |refusal| match refusal {
        Refusal::Schema(reason) => {
            let schema = &model.signature().input;
            Failure::Schema(format!(
                "Failed to predict data '{given}'. \nError: Failed to enforce schema of data '{given}' with schema '{schema}'. Error: {reason}"
            ))
        }
        Refusal::Model(reason) => {
            tracing::info!(model = model.name(), "The model cannot take the request: {reason}");
            Failure::BadRequest(UNEXPECTED.to_owned())
        }
        Refusal::NotNative(reason) => invalid(format_args!("The server evaluates this model natively, and {reason}.")),
    };
    let answer = model.predict(&given).map_err(failed)?;
    let mut text = "{\"predictions\": ".to_owned();
    write(&mut text, &answer);
    text.push('}');
    Ok(text)
}

/// Reads a body by its content type.
fn read(input: &Input, content_type: &str, body: &[u8]) -> Result<Given, Failure> {
    let mut parts = content_type.split(';').map(str::trim);
    let mime = parts.next().unwrap_or_default();
    let parameters: Vec<(&str, &str)> = parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
    let charset = parameters.iter().rfind(|(name, _)| *name == "charset").map_or("utf-8", |(_, value)| value);
    if !charset.eq_ignore_ascii_case("utf-8") {
        return Err(Failure::ContentType("The scoring server only supports UTF-8".to_owned()));
    }
    let others: Vec<_> = parameters.iter().map(|(name, _)| *name).filter(|name| *name != "charset").collect();
    if !others.is_empty() {
        let names = others.join(", ");
        return Err(Failure::ContentType(format!("Unrecognized content type parameters: {names}. {PROTOCOL_CHANGE}")));
    }
    let unreadable = |reason: &str| Failure::Unreadable(format!("Invalid input. It cannot be read: {reason}"));
    let text = || std::str::from_utf8(body).map_err(|error| unreadable(&error.to_string()));
    match mime {
        "text/csv" => csv::read(text()?, input).map_err(|reason| match reason {
            csv::CsvError::Pandas(reason) => Failure::BadRequest(format!(
                "Failed to parse input as a Pandas DataFrame. Ensure that the input is a valid CSV-formatted Pandas DataFrame produced using the `pandas.DataFrame.to_csv()` method. Error: '{reason}'"
            )),
            csv::CsvError::NotNative(reason) => {
                invalid(format_args!("The server evaluates this model natively, and {reason}."))
            }
        }),
        "application/json" => {
            let text = text()?;
            match python::read(text.strip_prefix('\u{feff}').unwrap_or(text)) {
                Ok(json) => given(json, input),
                Err(JsonError::Depth) => Err(unreadable("maximum recursion depth exceeded")),
                Err(JsonError::Syntax(reason)) => {
                    let error = super::values::Exception { class: "JSONDecodeError", message: reason };
                    Err(invalid(format_args!(
                        "Ensure that input is a valid JSON formatted string. Error: '{error}'\nInput: \n{}\n",
                        repr_bytes(body)
                    )))
                }
            }
        }
        "application/vnd.apache.parquet" => Err(Failure::ContentType(
            "The server evaluates this model natively, and reads no Parquet then: send CSV or JSON, or have `parameters.extra.backend` be `python`."
                .to_owned(),
        )),
        _ => Err(Failure::ContentType(format!(
            "This predictor only supports the following content types: Types: ['text/csv', 'application/json', 'application/vnd.apache.parquet']. Got '{content_type}'."
        ))),
    }
}

/// Takes what the model is given out of a JSON body.
fn given(json: Json, input: &Input) -> Result<Given, Failure> {
    let entries = match json {
        Json::Object(entries) => entries,
        Json::List(_) => return Err(invalid(format_args!("{ONE_FORM}. Received a list."))),
        other => {
            return Err(invalid(format_args!(
                "{ONE_FORM}. Received unexpected input type '<class '{}'>.",
                other.class()
            )));
        }
    };
    if entries.iter().any(|(name, _)| LLM.contains(&name.as_str())) {
        return Ok(other(&Json::Object(entries)));
    }
    let mut forms: Vec<(String, Json)> = entries.into_iter().filter(|(name, _)| FORMS.contains(&&**name)).collect();
    let names = python::list(forms.iter().map(|(name, _)| python::repr(name)));
    let (Some((form, data)), true) = (forms.pop(), forms.is_empty()) else {
        return Err(Failure::BadRequest(format!(
            "{ONE_FORM}. Received dictionary with input fields: {names}. {PROTOCOL_CHANGE}"
        )));
    };
    match form.as_str() {
        "dataframe_split" => split(data, input),
        "dataframe_records" => records(&data, input),
        "inputs" => inputs(&data, input),
        _ => instances(&data, input),
    }
}

fn other(json: &Json) -> Given {
    let names = match json {
        Json::Object(entries) => entries.iter().map(|(name, _)| name.clone()).collect(),
        _ => Vec::new(),
    };
    Given::Other { class: json.class(), names, text: json.repr() }
}

/// Reads `dataframe_split`.
fn split(data: Json, input: &Input) -> Result<Given, Failure> {
    let entries = match data {
        Json::Object(entries) => entries,
        Json::List(_) => return Err(invalid("Dataframe split format must be a dictionary. Got list.")),
        other => {
            let class = other.class();
            return Err(invalid(format_args!(
                "Dataframe split format must be a dictionary. Got type <class '{class}'>."
            )));
        }
    };
    let known = ["columns", "data", "index"];
    let mut names: Vec<_> = entries.iter().map(|(name, _)| name.clone()).collect();
    if !names.iter().any(|name| name == "data") || !names.iter().all(|name| known.contains(&name.as_str())) {
        names.sort();
        let names = names.iter().map(|name| python::repr(name)).collect::<Vec<_>>().join(", ");
        let names = if names.is_empty() { "set()".to_owned() } else { format!("{{{names}}}") };
        return Err(invalid(format_args!(
            "Dataframe split format must have 'data' field and optionally 'columns' and 'index' fields. Got {names}.'"
        )));
    }
    let find = |name: &str| entries.iter().find(|(own, _)| own == name).map(|(_, value)| value);
    let wrong = |reason: String| {
        invalid(format_args!(
            "Provided dataframe_split field is not a valid dataframe representation in 'split' format. Error: '{reason}'"
        ))
    };
    let labels = match find("columns") {
        None | Some(Json::Null) => None,
        Some(Json::List(names)) => Some(names.iter().map(label).collect::<Option<Vec<_>>>().ok_or_else(|| {
            wrong("The server evaluates this model natively, and takes texts alone as names of columns".to_owned())
        })?),
        Some(other) => {
            let reason =
                format!("Index(...) must be called with a collection of some kind, {} was passed", other.repr());
            return Err(wrong(reason));
        }
    };
    let Some(Json::List(rows)) = find("data") else {
        return Err(wrong(
            "The server evaluates this model natively, and takes a list of lists alone as data".to_owned(),
        ));
    };
    let mut cells = Vec::with_capacity(rows.len());
    for row in rows {
        // A column alone may be a list.
        let row = match row {
            Json::List(row) => row.iter().collect(),
            Json::Object(_) => {
                let reason = "The server evaluates this model natively, and takes no objects as rows";
                return Err(wrong(reason.to_owned()));
            }
            cell => vec![cell],
        };
        cells.push(row);
    }
    let width = cells.iter().map(Vec::len).max().unwrap_or_default();
    let labels = labels.unwrap_or_else(|| (0..width).map(Label::Place).collect());
    if !cells.is_empty() && labels.len() != width {
        return Err(wrong(format!("{} columns passed, passed data had {width} columns", labels.len())));
    }
    if let Some(Json::List(index)) = find("index")
        && index.len() != cells.len()
    {
        let (rows, names) = (cells.len(), index.len());
        return Err(wrong(format!("Length of values ({rows}) does not match length of index ({names})")));
    }
    // What a short row lacks is missing.
    let columns: Vec<Vec<&Json>> = (0..labels.len())
        .map(|column| cells.iter().map(|row| row.get(column).copied().unwrap_or(&Json::Null)).collect())
        .collect();
    frame(labels, &columns, cells.len(), input).map(Given::Frame)
}

fn label(json: &Json) -> Option<Label> {
    match json {
        Json::Text(name) => Some(Label::Name(name.clone())),
        Json::Int(place) => usize::try_from(*place).ok().map(Label::Place),
        _ => None,
    }
}

/// Reads `dataframe_records`.
fn records(data: &Json, input: &Input) -> Result<Given, Failure> {
    let Json::List(items) = data else {
        let class = match data {
            Json::Object(_) => "dictionary".to_owned(),
            other => format!("type <class '{}'>", other.class()),
        };
        return Err(invalid(format_args!("Dataframe records format must be a list of records. Got {class}.")));
    };
    let mut labels: Vec<Label> = Vec::new();
    let mut places = std::collections::HashMap::new();
    let mut rows = Vec::with_capacity(items.len());
    for item in items {
        let Json::Object(entries) = item else {
            return Err(invalid("The server evaluates this model natively, and takes objects alone as records."));
        };
        let mut row = Vec::with_capacity(labels.len());
        for (name, value) in entries {
            let place = *places.entry(name.as_str()).or_insert_with(|| {
                labels.push(Label::Name(name.clone()));
                labels.len() - 1
            });
            row.push((place, value));
        }
        rows.push(row);
    }
    if labels.len().saturating_mul(rows.len()) > MAX_CELLS {
        let most = MAX_CELLS;
        return Err(invalid(format_args!("The records have more than {most} cells together, most of them missing.")));
    }
    let mut columns: Vec<Vec<&Json>> = vec![vec![&Json::Null; rows.len()]; labels.len()];
    for (index, row) in rows.iter().enumerate() {
        for (place, value) in row {
            columns[*place][index] = value;
        }
    }
    frame(labels, &columns, rows.len(), input).map(Given::Frame)
}

/// How many cells a frame of records may have: each record could bring columns that all others lack.
const MAX_CELLS: usize = 1 << 24;

/// Makes a frame, the columns of which get the types of the signature.
fn frame(labels: Vec<Label>, cells: &[Vec<&Json>], rows: usize, input: &Input) -> Result<Frame, Failure> {
    let wanted = |label: &Label| match input {
        Input::Anything => None,
        Input::Columns(columns) => columns.iter().find(|column| label.is(&column.name)).map(|column| column.kind),
        Input::Tensor { kind, .. } => Some(kind.0),
    };
    // The first column of the signature that cannot be converted is told.
    let mut order: Vec<usize> = (0..labels.len()).collect();
    if let Input::Columns(columns) = input {
        order.sort_by_key(|place| columns.iter().position(|column| labels[*place].is(&column.name)));
    }
    let mut columns: Vec<Values> = vec![Values::Objects(Vec::new()); labels.len()];
    for place in order {
        let (label, cells) = (&labels[place], &cells[place]);
        columns[place] = match wanted(label) {
            None => infer(cells),
            Some(kind) if rows == 0 && matches!(input, Input::Tensor { .. }) => {
                // pandas looks at the first row for lists.
                return Err(invalid(format_args!(
                    "Data is not compatible with model signature. Failed to convert column {} to type '{}'. Error: 'IndexError('single positional indexer is out-of-bounds')'",
                    label.text(),
                    kind.pandas()
                )));
            }
            Some(kind) => cast_column(cells, kind).map_err(|error| {
                invalid(format_args!(
                    "Data is not compatible with model signature. Failed to convert column {} to type '{}'. Error: '{error}'",
                    label.text(),
                    kind.pandas()
                ))
            })?,
        };
    }
    Ok(Frame { labels, columns, rows })
}

fn kind_of(input: &Input, name: &str) -> Option<Kind> {
    match input {
        Input::Columns(columns) => columns.iter().find(|column| column.name == name).map(|column| column.kind),
        Input::Tensor { .. } | Input::Anything => None,
    }
}

/// Makes an array of the type that is wanted, if one is.
fn array(json: &Json, kind: Option<Kind>) -> Result<Array, Failure> {
    let exception = |error: super::values::Exception| invalid(error.message);
    match kind {
        Some(kind) => Array::of(json, kind).map_err(exception),
        None => Array::inferred(json).map_err(exception)?.ok_or_else(|| {
            invalid(
                "The server evaluates this model natively, and takes an array without a signature as numbers or as texts, without missing values.",
            )
        }),
    }
}

/// Reads `inputs`, and `instances` that are no objects.
fn inputs(data: &Json, input: &Input) -> Result<Given, Failure> {
    let is_object = |item: &Json| matches!(item, Json::Object(_));
    match (data, input) {
        (Json::List(items), Input::Columns(columns)) if !items.iter().any(is_object) && columns.len() == 1 => {
            let column = columns.iter().map(|column| Ok((column.name.clone(), array(data, Some(column.kind))?)));
            return column.collect::<Result<_, _>>().map(Given::Arrays);
        }
        (Json::Object(_), Input::Tensor { .. }) => {
            return Err(invalid(
                "Failed to parse input data. This model contains an un-named  model signature which expects a single n-dimensional array or a single value as input, however, an input of type <class 'dict'> was found.",
            ));
        }
        _ => {}
    }
    match data {
        Json::Object(entries) => {
            let entries = entries.iter().map(|(name, value)| Ok((name.clone(), array(value, kind_of(input, name))?)));
            Ok(Given::Arrays(entries.collect::<Result<_, Failure>>()?))
        }
        Json::List(items) if items.iter().all(is_object) => match input {
            Input::Columns(_) if !items.is_empty() => objects(items, input),
            _ => {
                // In Python each value has become an array.
                let value = |(name, value): &(String, Json)| {
                    let array = array(value, None)?.text(true).unwrap_or_else(|| "...".to_owned());
                    Ok(format!("{}: {array}", python::repr(name)))
                };
                let object = |item: &Json| match item {
                    Json::Object(entries) => {
                        let entries = entries.iter().map(value).collect::<Result<Vec<_>, Failure>>()?;
                        Ok(format!("{{{}}}", entries.join(", ")))
                    }
                    other => Ok(other.repr()),
                };
                let items = items.iter().map(object).collect::<Result<Vec<_>, Failure>>()?;
                Ok(Given::Other { class: "list", names: Vec::new(), text: python::list(items.into_iter()) })
            }
        },
        _ => {
            let first = match input {
                Input::Columns(columns) => columns.first().map(|column| column.kind),
                Input::Tensor { kind, .. } => Some(kind.0),
                Input::Anything => None,
            };
            let scalar = !matches!(data, Json::List(_));
            array(data, first).map(Given::Array).map_err(|failure| match failure {
                Failure::BadRequest(_) if scalar && first.is_some() => {
                    let schema = input.to_string();
                    let spec = schema.trim_start_matches('[').trim_end_matches(']');
                    let spec = spec.split(", '").next().unwrap_or_default();
                    invalid(format_args!(
                        "Failed to convert data `{}` to type `{spec}` defined in the model signature.",
                        data.text()
                    ))
                }
                failure => failure,
            })
        }
    }
}

/// Reads a list of objects under `inputs`, which is a frame by rows.
fn objects(items: &[Json], input: &Input) -> Result<Given, Failure> {
    for item in items {
        let Json::Object(entries) = item else { continue };
        for (name, value) in entries {
            array(value, kind_of(input, name))?;
        }
    }
    records(&Json::List(items.to_vec()), input)
}

/// Reads `instances`; a list of objects becomes an object of lists.
fn instances(data: &Json, input: &Input) -> Result<Given, Failure> {
    let items = match data {
        Json::List(items) if matches!(items.first(), Some(Json::Object(_))) => items,
        _ => {
            let given = inputs(data, input)?;
            if let Given::Arrays(arrays) = &given {
                same_lengths(arrays, input)?;
            }
            return Ok(given);
        }
    };
    let mut names: Vec<&String> = Vec::new();
    let mut places = std::collections::HashMap::new();
    let mut lists: Vec<Vec<Json>> = Vec::new();
    for item in items {
        let Json::Object(entries) = item else {
            let class = item.class();
            return Err(invalid(format_args!(
                "Ensure that the input is a valid JSON-formatted string.\nError: AttributeError(\"'{class}' object has no attribute 'items'\")"
            )));
        };
        for (name, value) in entries {
            let place = *places.entry(name.as_str()).or_insert_with(|| {
                names.push(name);
                lists.push(Vec::new());
                lists.len() - 1
            });
            // Each value is converted by itself, so that the first one that cannot be is told.
            array(value, kind_of(input, name))?;
            lists[place].push(value.clone());
        }
    }
    let arrays = names.into_iter().zip(lists).map(|(name, list)| {
        let list = Json::List(list);
        Ok((name.clone(), array(&list, kind_of(input, name))?))
    });
    let arrays = arrays.collect::<Result<Vec<_>, Failure>>()?;
    same_lengths(&arrays, input)?;
    Ok(Given::Arrays(arrays))
}

fn same_lengths(arrays: &[(String, Array)], input: &Input) -> Result<(), Failure> {
    let checked =
        |name: &str| matches!(input, Input::Anything | Input::Tensor { .. }) || kind_of(input, name).is_some();
    let mut lengths =
        arrays.iter().filter(|(name, _)| checked(name)).filter_map(|(_, array)| array.shape.first().copied());
    let first = lengths.next();
    if lengths.any(|length| Some(length) != first) {
        return Err(invalid("The length of values for each input/column name are not the same"));
    }
    Ok(())
}

/// Writes predictions as Python's JSON does.
fn write(out: &mut String, answer: &Answer) {
    let cell = |out: &mut String, place: usize| match &answer.elements {
        Elements::F64(values) => write_float(out, values[place]),
        // As doubles, which they become on the way.
        Elements::F32(values) => write_float(out, f64::from(values[place])),
        Elements::Int(values, IntType::Bool) => out.push_str(if values[place] == 0 { "false" } else { "true" }),
        Elements::Int(values, _) => {
            let _ = write!(out, "{}", values[place]);
        }
        Elements::Text(values) => write_text(out, &values[place]),
    };
    let row = |out: &mut String, start: usize, count: usize| {
        for place in start..start + count {
            if place > start {
                out.push_str(", ");
            }
            cell(out, place);
        }
    };
    out.push('[');
    if answer.flat {
        row(out, 0, answer.elements.len());
    } else {
        for index in 0..answer.rows {
            out.push_str(if index > 0 { ", [" } else { "[" });
            row(out, index * answer.columns, answer.columns);
            out.push(']');
        }
    }
    out.push(']');
}
