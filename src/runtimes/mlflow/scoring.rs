//! `POST /invocations`: the protocol of MLflow's scoring server.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::AtomicBool;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::EnforcedModel;
use super::csv;
use super::enforce::InputError;
use super::evaluator::{Nesting, Prediction};
use super::python::{self, Json, JsonError, echo, echo_bytes, echo_name, write_float, write_text};
use super::signature::{ColumnType, InputSchema};
use super::values::{
    ColumnLabel, ColumnValues, DataFrame, ModelInput, NdArray, cast_column, check_cells, infer, truth,
};
use crate::evaluators::table::{Elements, IntType};
use crate::types::{CustomReply, text};

/// The fields of a body, of which exactly one must be present.
const INPUT_FIELDS: [&str; 4] = ["dataframe_records", "dataframe_split", "inputs", "instances"];
/// A body with one of these fields is a request to a language model.
const LLM_FIELDS: [&str; 3] = ["messages", "prompt", "input"];

const ONE_FIELD: &str = "The input must be a JSON dictionary with exactly one of the input fields {'dataframe_records', 'dataframe_split', 'inputs', 'instances'}";
const PROTOCOL_CHANGE: &str = "IMPORTANT: The MLflow Model scoring protocol has changed in MLflow version 2.0. If you are seeing this error, you are likely using an outdated scoring request format. To resolve the error, either update your request format or adjust your MLflow Model's requirements file to specify an older version of MLflow (for example, change the 'mlflow' requirement specifier to 'mlflow==1.30.0'). If you are making a request using the MLflow client (e.g. via `mlflow.pyfunc.spark_udf()`), upgrade your MLflow client to a version >= 2.0 in order to use the new request format. For more information about the updated MLflow Model scoring protocol in MLflow 2.0, see https://mlflow.org/docs/latest/models.html#deploy-mlflow-models.";
const UNEXPECTED: &str = "Encountered an unexpected error while evaluating the model. Verify that the serialized input Dataframe is compatible with the model for inference.";

/// The most bytes of a message that are logged.
const MAX_LOGGED: usize = 1024;

/// Why a call is answered with an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScoringError {
    /// Unsupported content type: status 415 with a plain text.
    ContentType(String),
    /// The body is invalid, or the model fails.
    BadRequest(String),
    /// The body does not match the signature.
    Schema(String),
    /// The body cannot be parsed.
    Unreadable(String),
    /// MLflow does not tell the mistake of the client from one of the server.
    Internal(String),
}

pub(super) fn invalid(message: impl std::fmt::Display) -> ScoringError {
    ScoringError::BadRequest(format!("Invalid input. {message}"))
}

/// Answers a call.
pub(super) fn answer(model: &EnforcedModel, content_type: &str, body: &[u8], stop: &AtomicBool) -> CustomReply {
    match predictions(model, content_type, body, stop) {
        Ok(text) => reply(StatusCode::OK, "application/json", text),
        Err(failure) => failure.logged_reply(model.name()),
    }
}

/// Creates a reply with a text.
pub(super) fn reply(status: StatusCode, content_type: &'static str, text: String) -> CustomReply {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    CustomReply { status, headers, body: text.into() }
}

impl ScoringError {
    /// Returns the start of the message, for the log.
    fn reason(&self) -> &str {
        let (Self::ContentType(text)
        | Self::BadRequest(text)
        | Self::Schema(text)
        | Self::Unreadable(text)
        | Self::Internal(text)) = self;
        &text[..text.floor_char_boundary(MAX_LOGGED)]
    }

    /// Creates the reply, and logs the reason.
    pub(super) fn logged_reply(self, model: &str) -> CustomReply {
        tracing::debug!(model, reason = self.reason(), "A call of /invocations failed.");
        self.reply()
    }

    /// Returns the error of a body that is readable, but that the model or its signature rejects.
    pub(super) fn of_input(error: InputError, input: &ModelInput, schema: &InputSchema, model: &str) -> Self {
        match error {
            InputError::Schema(reason) => Self::Schema(format!(
                "Failed to predict data '{input}'. \nError: Failed to enforce schema of data '{input}' with schema '{schema}'. Error: {reason}"
            )),
            InputError::Model(reason) => {
                let reason = python::echo(&reason).into_owned();
                tracing::debug!(model, reason, "The model cannot process a call of /invocations.");
                Self::BadRequest(UNEXPECTED.to_owned())
            }
            InputError::Internal(reason) => {
                Self::Internal(format!("Failed to predict data '{input}'. \nError: {reason}"))
            }
            InputError::NotNative(reason) => {
                invalid(format_args!("The server evaluates this model natively, and {reason}."))
            }
        }
    }

    pub(super) fn reply(self) -> CustomReply {
        let (code, message, state, class) = match self {
            Self::ContentType(text) => {
                return reply(StatusCode::UNSUPPORTED_MEDIA_TYPE, "text/plain; charset=utf-8", text);
            }
            Self::BadRequest(message) => ("BAD_REQUEST", message, "KAM00", "INVALID_PARAMETER_VALUE"),
            Self::Unreadable(message) => ("INVALID_PARAMETER_VALUE", message, "KAM00", "INVALID_PARAMETER_VALUE"),
            Self::Schema(message) => ("INVALID_PARAMETER_VALUE", message, "KAM01", "SCHEMA_ENFORCEMENT_FAILED"),
            Self::Internal(message) => ("INTERNAL_ERROR", message, "XXM00", "CLIENT_INTERNAL_ERROR"),
        };
        let status = if code == "INTERNAL_ERROR" { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::BAD_REQUEST };
        let mut text = format!("{{\"error_code\": \"{code}\", \"message\": ");
        write_text(&mut text, &message);
        let _ = write!(text, ", \"sqlstate\": \"{state}\", \"error_class\": \"{class}\"}}");
        reply(status, "application/json", text)
    }
}

fn predictions(
    model: &EnforcedModel,
    content_type: &str,
    body: &[u8],
    stop: &AtomicBool,
) -> Result<String, ScoringError> {
    let schema = &model.signature().input;
    let input = read_body(schema, content_type, body)?;
    let failed = |error| ScoringError::of_input(error, &input, schema, model.name());
    let prediction = model.predict(&input, true, stop).map_err(failed)?;
    let mut text = "{\"predictions\": ".to_owned();
    write_prediction(&mut text, &prediction);
    text.push('}');
    Ok(text)
}

/// Parses a body according to its content type. Unlike MLflow's server, it accepts what MLflow's documents send: an empty parameter
/// after `;`, `application/csv`, and a list of objects as records.
pub(super) fn read_body(schema: &InputSchema, content_type: &str, body: &[u8]) -> Result<ModelInput, ScoringError> {
    let mut fields = content_type.split(';').map(str::trim);
    let mime = fields.next().unwrap_or_default();
    let parameters: Vec<(&str, &str)> =
        fields.filter(|field| !field.is_empty()).map(|field| field.split_once('=').unwrap_or((field, ""))).collect();
    let charset = parameters.iter().rfind(|(name, _)| *name == "charset").map_or("utf-8", |(_, value)| value);
    if !charset.eq_ignore_ascii_case("utf-8") {
        return Err(ScoringError::ContentType("The scoring server only supports UTF-8".to_owned()));
    }
    let others: Vec<_> = parameters.iter().map(|(name, _)| *name).filter(|name| *name != "charset").collect();
    if !others.is_empty() {
        let names = others.join(", ");
        return Err(ScoringError::ContentType(format!(
            "Unrecognized content type parameters: {}. {PROTOCOL_CHANGE}",
            echo(&names)
        )));
    }
    let unreadable = |reason: &str| ScoringError::Unreadable(format!("Invalid input. It cannot be read: {reason}"));
    let text = || text::utf8(body).map_err(|error| unreadable(&error.to_string()));
    match mime {
        "text/csv" | "application/csv" => csv::read(text()?, schema).map_err(|reason| match reason {
            csv::CsvError::Pandas(reason) => ScoringError::BadRequest(format!(
                "Failed to parse input as a Pandas DataFrame. Ensure that the input is a valid CSV-formatted Pandas DataFrame produced using the `pandas.DataFrame.to_csv()` method. Error: '{reason}'"
            )),
            csv::CsvError::NotNative(reason) => {
                invalid(format_args!("The server evaluates this model natively, and {reason}."))
            }
        }),
        "application/json" => {
            match python::read(text()?) {
                Ok(json) => read_json(json, schema),
                Err(JsonError::Depth) => Err(unreadable("maximum recursion depth exceeded")),
                Err(JsonError::Syntax(reason)) => {
                    let error = super::values::PythonException { class: "JSONDecodeError", message: reason };
                    Err(invalid(format_args!(
                        "Ensure that input is a valid JSON formatted string. Error: '{error}'\nInput: \n{}\n",
                        echo_bytes(body)
                    )))
                }
            }
        }
        "application/vnd.apache.parquet" => Err(ScoringError::ContentType(
            "The server evaluates this model natively, which does not support Parquet: send CSV or JSON, or set `parameters.extra.backend` to `python`."
                .to_owned(),
        )),
        _ => Err(ScoringError::ContentType(format!(
            "This predictor only supports the following content types: Types: ['text/csv', 'application/json', 'application/vnd.apache.parquet']. Got '{}'.",
            echo(content_type)
        ))),
    }
}

/// Reads the model's input from a JSON body.
fn read_json(json: Json, input: &InputSchema) -> Result<ModelInput, ScoringError> {
    let entries = match json {
        Json::Object(entries) => entries,
        Json::List(items) if !items.is_empty() && items.iter().all(is_object) => {
            return records(&Json::List(items), input);
        }
        Json::List(_) => return Err(invalid(format_args!("{ONE_FIELD}. Received a list."))),
        other => {
            return Err(invalid(format_args!(
                "{ONE_FIELD}. Received unexpected input type '<class '{}'>.",
                other.class()
            )));
        }
    };
    if entries.iter().any(|(name, _)| LLM_FIELDS.contains(&name.as_str())) {
        return Ok(other(&Json::Object(entries)));
    }
    let mut fields: Vec<(String, Json)> =
        entries.into_iter().filter(|(name, _)| INPUT_FIELDS.contains(&&**name)).collect();
    let names = python::list(fields.iter().map(|(name, _)| python::repr(name)));
    let (Some((field, data)), true) = (fields.pop(), fields.is_empty()) else {
        return Err(ScoringError::BadRequest(format!(
            "{ONE_FIELD}. Received dictionary with input fields: {names}. {PROTOCOL_CHANGE}"
        )));
    };
    match field.as_str() {
        "dataframe_split" => split(data, input),
        "dataframe_records" => records(&data, input),
        "inputs" => inputs(&data, input),
        _ => instances(&data, input),
    }
}

fn other(json: &Json) -> ModelInput {
    let names = match json {
        Json::Object(entries) => entries.iter().map(|(name, _)| name.clone()).collect(),
        _ => Vec::new(),
    };
    ModelInput::Other { class: json.class(), names, text: json.repr() }
}

/// Reads `dataframe_split`.
fn split(data: Json, input: &InputSchema) -> Result<ModelInput, ScoringError> {
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
            "Dataframe split format must have 'data' field and optionally 'columns' and 'index' fields. Got {}.'",
            echo(&names)
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
            wrong("The server evaluates this model natively, and only supports strings as names of columns".to_owned())
        })?),
        Some(other) => {
            let reason =
                format!("Index(...) must be called with a collection of some kind, {} was passed", echo(&other.repr()));
            return Err(wrong(reason));
        }
    };
    let Some(Json::List(rows)) = find("data") else {
        return Err(wrong(
            "The server evaluates this model natively, and only supports a list of lists as data".to_owned(),
        ));
    };
    let mut cells = Vec::with_capacity(rows.len());
    for row in rows {
        // The rows of a single column may be scalars.
        let row = match row {
            Json::List(row) => row.iter().collect(),
            Json::Object(_) => {
                let reason = "The server evaluates this model natively, and does not support objects as rows";
                return Err(wrong(reason.to_owned()));
            }
            cell => vec![cell],
        };
        cells.push(row);
    }
    let width = cells.iter().map(Vec::len).max().unwrap_or_default();
    let labels = labels.unwrap_or_else(|| (0..width).map(ColumnLabel::Index).collect());
    if !cells.is_empty() && labels.len() != width {
        return Err(wrong(format!("{} columns passed, passed data had {width} columns", labels.len())));
    }
    if let Some(Json::List(index)) = find("index")
        && index.len() != cells.len()
    {
        let (rows, names) = (cells.len(), index.len());
        return Err(wrong(format!("Length of values ({rows}) does not match length of index ({names})")));
    }
    if let (Some(Json::List(index)), InputSchema::Tensor { .. }, [_]) = (find("index"), input, &labels[..])
        && !index.is_empty()
        && index.iter().all(|name| matches!(name, Json::Int(name) if *name != 0))
    {
        // MLflow looks for lists in the row with this index.
        return Err(invalid(
            "A data frame of one column must have a row with the index 0, if the signature has a tensor.",
        ));
    }
    let values = cells.iter().map(Vec::len).sum();
    check_cells(cells.len(), labels.len(), values).map_err(|reason| invalid(format_args!("The data is {reason}.")))?;
    // Short rows are filled with missing values.
    let columns: Vec<Vec<&Json>> = (0..labels.len())
        .map(|column| cells.iter().map(|row| row.get(column).copied().unwrap_or(&Json::Null)).collect())
        .collect();
    frame(labels, &columns, cells.len(), input).map(ModelInput::Frame)
}

fn label(json: &Json) -> Option<ColumnLabel> {
    match json {
        Json::Text(name) => Some(ColumnLabel::Name(name.clone())),
        Json::Int(place) => usize::try_from(*place).ok().map(ColumnLabel::Index),
        _ => None,
    }
}

/// What pandas puts where a record has no value. A column with `null` only is one of objects, and with this a column of numbers.
static ABSENT: Json = Json::Float(f64::NAN);

/// Reads `dataframe_records`.
fn records(data: &Json, input: &InputSchema) -> Result<ModelInput, ScoringError> {
    let Json::List(items) = data else {
        let class = match data {
            Json::Object(_) => "dictionary".to_owned(),
            other => format!("type <class '{}'>", other.class()),
        };
        return Err(invalid(format_args!("Dataframe records format must be a list of records. Got {class}.")));
    };
    let mut labels: Vec<ColumnLabel> = Vec::new();
    let mut places = HashMap::new();
    let mut rows = Vec::with_capacity(items.len());
    for item in items {
        let Json::Object(entries) = item else {
            return Err(invalid("The server evaluates this model natively, and only supports objects as records."));
        };
        let mut row = Vec::with_capacity(entries.len());
        for (name, value) in entries {
            let place = *places.entry(name.as_str()).or_insert_with(|| {
                labels.push(ColumnLabel::Name(name.clone()));
                labels.len() - 1
            });
            row.push((place, value));
        }
        rows.push(row);
    }
    let values = rows.iter().map(Vec::len).sum();
    check_cells(rows.len(), labels.len(), values).map_err(|reason| invalid(format_args!("The data is {reason}.")))?;
    let mut columns: Vec<Vec<&Json>> = vec![vec![&ABSENT; rows.len()]; labels.len()];
    for (index, row) in rows.iter().enumerate() {
        for (place, value) in row {
            columns[*place][index] = value;
        }
    }
    frame(labels, &columns, rows.len(), input).map(ModelInput::Frame)
}

/// Creates a frame whose columns have the types in the signature.
fn frame(
    labels: Vec<ColumnLabel>,
    cells: &[Vec<&Json>],
    rows: usize,
    input: &InputSchema,
) -> Result<DataFrame, ScoringError> {
    let declared: HashMap<&str, (usize, ColumnType)> = match input {
        InputSchema::Columns(columns) => columns
            .iter()
            .enumerate()
            .rev()
            .map(|(place, column)| (column.name.as_str(), (place, column.kind)))
            .collect(),
        InputSchema::Any | InputSchema::Tensor { .. } => HashMap::new(),
    };
    let declared = |label: &ColumnLabel| match label {
        ColumnLabel::Name(name) => declared.get(name.as_str()).copied(),
        ColumnLabel::Index(_) => None,
    };
    let wanted = |label: &ColumnLabel| match input {
        InputSchema::Any => None,
        InputSchema::Columns(_) => declared(label).map(|(_, kind)| kind),
        InputSchema::Tensor { kind, .. } => Some(kind.0),
    };
    // The error names the first column, in the order of the signature, that cannot be converted.
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|place| declared(&labels[*place]).map(|(place, _)| place));
    let mut columns: Vec<ColumnValues> = vec![ColumnValues::Objects(Vec::new()); labels.len()];
    for place in order {
        let (label, cells) = (&labels[place], &cells[place]);
        columns[place] = match wanted(label) {
            None => infer(cells),
            Some(kind) if rows == 0 && matches!(input, InputSchema::Tensor { .. }) => {
                // pandas looks at the first row for lists.
                return Err(invalid(format_args!(
                    "Data is not compatible with model signature. Failed to convert column {} to type '{}'. Error: 'IndexError('single positional indexer is out-of-bounds')'",
                    echo_name(&label.text()),
                    kind.pandas()
                )));
            }
            Some(_) if !matches!(input, InputSchema::Columns(_)) && matches!(cells.first(), Some(Json::List(_))) => {
                // MLflow makes one array of them.
                return Err(invalid(
                    "The server evaluates this model natively, and does not support lists as cells of a data frame.",
                ));
            }
            Some(kind) => cast_column(cells, kind).map_err(|error| {
                invalid(format_args!(
                    "Data is not compatible with model signature. Failed to convert column {} to type '{}'. Error: '{error}'",
                    echo_name(&label.text()),
                    kind.pandas()
                ))
            })?,
        };
    }
    Ok(DataFrame { labels, columns, rows })
}

fn kind_of(input: &InputSchema, name: &str) -> Option<ColumnType> {
    match input {
        InputSchema::Columns(columns) => columns.iter().find(|column| column.name == name).map(|column| column.kind),
        InputSchema::Tensor { .. } | InputSchema::Any => None,
    }
}

/// Creates an array of type `kind`, or of the inferred type.
fn array(json: &Json, kind: Option<ColumnType>) -> Result<NdArray, ScoringError> {
    let exception = |error: super::values::PythonException| invalid(error.message);
    match kind {
        Some(kind) => NdArray::with_type(json, kind).map_err(exception),
        None => NdArray::with_inferred_type(json).map_err(exception)?.ok_or_else(|| {
            invalid(
                "The server evaluates this model natively, and without a signature only supports arrays of numbers or of strings, without missing values.",
            )
        }),
    }
}

fn is_object(json: &Json) -> bool {
    matches!(json, Json::Object(_))
}

/// Reads `inputs`, and `instances` that are not objects.
fn inputs(data: &Json, input: &InputSchema) -> Result<ModelInput, ScoringError> {
    match (data, input) {
        (Json::List(items), InputSchema::Columns(columns)) if !items.iter().any(is_object) && columns.len() == 1 => {
            let column = columns.iter().map(|column| Ok((column.name.clone(), array(data, Some(column.kind))?)));
            return column.collect::<Result<_, _>>().map(ModelInput::Arrays);
        }
        (Json::Object(_), InputSchema::Tensor { .. }) => {
            return Err(invalid(
                "Failed to parse input data. This model contains an un-named  model signature which expects a single n-dimensional array or a single value as input, however, an input of type <class 'dict'> was found.",
            ));
        }
        _ => {}
    }
    match data {
        Json::Object(entries) => {
            let entries = entries.iter().map(|(name, value)| Ok((name.clone(), array(value, kind_of(input, name))?)));
            Ok(ModelInput::Arrays(entries.collect::<Result<_, ScoringError>>()?))
        }
        Json::List(items) if items.iter().all(is_object) => match input {
            InputSchema::Columns(_) if !items.is_empty() => objects(items, input),
            _ => {
                // Python converts each value to an array.
                let value = |(name, value): &(String, Json)| {
                    let array = array(value, None)?.text(true).unwrap_or_else(|| "...".to_owned());
                    Ok(format!("{}: {array}", python::repr(name)))
                };
                let object = |item: &Json| match item {
                    Json::Object(entries) => {
                        let entries = entries.iter().map(value).collect::<Result<Vec<_>, ScoringError>>()?;
                        Ok(format!("{{{}}}", entries.join(", ")))
                    }
                    other => Ok(other.repr()),
                };
                let items = items.iter().map(object).collect::<Result<Vec<_>, ScoringError>>()?;
                Ok(ModelInput::Other { class: "list", names: Vec::new(), text: python::list(items.into_iter()) })
            }
        },
        _ => {
            let first = match input {
                InputSchema::Columns(columns) => columns.first().map(|column| column.kind),
                InputSchema::Tensor { kind, .. } => Some(kind.0),
                InputSchema::Any => None,
            };
            let scalar = !matches!(data, Json::List(_));
            array(data, first).map(ModelInput::Array).map_err(|failure| match failure {
                ScoringError::BadRequest(_) if scalar && first.is_some() => {
                    let schema = input.to_string();
                    let spec = schema.trim_start_matches('[').trim_end_matches(']');
                    let spec = spec.split(", '").next().unwrap_or_default();
                    invalid(format_args!(
                        "Failed to convert data `{}` to type `{spec}` defined in the model signature.",
                        echo(&data.text())
                    ))
                }
                failure => failure,
            })
        }
    }
}

/// Reads a list of objects under `inputs`: the rows of a frame.
fn objects(items: &[Json], input: &InputSchema) -> Result<ModelInput, ScoringError> {
    let mut items = items.to_vec();
    for item in &mut items {
        let Json::Object(entries) = item else { continue };
        for (name, value) in entries {
            let kind = kind_of(input, name);
            array(value, kind)?;
            if kind == Some(ColumnType::Boolean) {
                // Each value is converted by itself, so that `null` is false.
                if matches!(value, Json::List(_)) {
                    return Err(invalid("Lists in a column of booleans are not supported."));
                }
                *value = Json::Bool(truth(value));
            }
        }
    }
    records(&Json::List(items), input)
}

/// Reads `instances`. A list of objects becomes an object of lists.
fn instances(data: &Json, input: &InputSchema) -> Result<ModelInput, ScoringError> {
    let items = match data {
        Json::List(items) if matches!(items.first(), Some(Json::Object(_))) => items,
        _ => {
            let model_input = inputs(data, input)?;
            if let ModelInput::Arrays(arrays) = &model_input {
                same_lengths(arrays, input)?;
            }
            return Ok(model_input);
        }
    };
    let mut names: Vec<&String> = Vec::new();
    let mut places = HashMap::new();
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
            // Each value is also converted by itself, so that the error names the first one that cannot be converted.
            array(value, kind_of(input, name))?;
            lists[place].push(value.clone());
        }
    }
    let arrays = names.into_iter().zip(lists).map(|(name, list)| {
        let list = Json::List(list);
        Ok((name.clone(), array(&list, kind_of(input, name))?))
    });
    let arrays = arrays.collect::<Result<Vec<_>, ScoringError>>()?;
    same_lengths(&arrays, input)?;
    Ok(ModelInput::Arrays(arrays))
}

fn same_lengths(arrays: &[(String, NdArray)], input: &InputSchema) -> Result<(), ScoringError> {
    let checked =
        |name: &str| matches!(input, InputSchema::Any | InputSchema::Tensor { .. }) || kind_of(input, name).is_some();
    let mut lengths =
        arrays.iter().filter(|(name, _)| checked(name)).filter_map(|(_, array)| array.shape.first().copied());
    let first = lengths.next();
    if lengths.any(|length| Some(length) != first) {
        return Err(invalid("The length of values for each input/column name are not the same"));
    }
    Ok(())
}

/// Writes a value as Python's JSON does.
pub(super) fn write_cell(out: &mut String, elements: &Elements<'_>, index: usize) {
    match elements {
        Elements::F64(values) => write_float(out, values[index]),
        // MLflow converts them to doubles.
        Elements::F32(values) => write_float(out, f64::from(values[index])),
        Elements::Int(values, IntType::Bool) => out.push_str(if values[index] == 0 { "false" } else { "true" }),
        Elements::Int(values, _) => {
            let _ = write!(out, "{}", values[index]);
        }
        Elements::Text(values) => write_text(out, &values[index]),
        Elements::PartialText(values) => match &values[index] {
            Some(text) => write_text(out, text),
            None => write_float(out, f64::NAN),
        },
    }
}

/// Writes predictions as Python's JSON does.
fn write_prediction(out: &mut String, prediction: &Prediction) {
    let row = |out: &mut String, start: usize, count: usize| {
        for index in start..start + count {
            if index > start {
                out.push_str(", ");
            }
            write_cell(out, &prediction.elements, index);
        }
    };
    match prediction.nesting {
        Nesting::Scalar => row(out, 0, prediction.elements.len()),
        Nesting::List => {
            out.push('[');
            row(out, 0, prediction.elements.len());
            out.push(']');
        }
        Nesting::Lists => {
            out.push('[');
            for index in 0..prediction.rows {
                out.push_str(if index > 0 { ", [" } else { "[" });
                row(out, index * prediction.columns, prediction.columns);
                out.push(']');
            }
            out.push(']');
        }
    }
}
