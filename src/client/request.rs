//! Turns rows into requests.

use std::ops::Range;

use uuid::Uuid;

use super::lines::{InputLine, MAX_LINE};
use super::row::InvalidRow;
use super::table::TableRequest;
use super::topic::RecordRow;
use crate::types::json::{JsonRequest, ReadError, read_request_with};
use crate::types::merge::{self, BatchKey, BatchShare};
use crate::types::{InferenceRequest, RequestedOutput, Tensor, TensorRule};

/// Rows that can share a request.
#[derive(Debug)]
pub(super) struct RequestGroup {
    /// The request for all rows. It has no id.
    request: InferenceRequest,
    pub(super) members: Vec<GroupMember>,
}

/// A row of the input in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupMember {
    /// Its position in the batch.
    pub(super) position: usize,
    pub(super) id: String,
    /// How many rows its tensors have. Unused if the group has a single member.
    pub(super) rows: usize,
}

/// Reads the requests of a file's lines and groups those that differ only in their rows.
pub(super) fn prepare(lines: Vec<InputLine>) -> (Vec<RequestGroup>, Vec<InvalidRow>) {
    prepare_rows("line", lines.into_iter().map(|line| RecordRow { id: None, line }))
}

/// Reads the requests of a topic's records and groups those that differ only in their rows.
pub(super) fn prepare_records(records: Vec<RecordRow>) -> (Vec<RequestGroup>, Vec<InvalidRow>) {
    prepare_rows("record", records)
}

fn prepare_rows(noun: &str, rows: impl IntoIterator<Item = RecordRow>) -> (Vec<RequestGroup>, Vec<InvalidRow>) {
    let (mut forms, mut invalid) = (Vec::<(Option<BatchKey>, Vec<(GroupMember, InferenceRequest)>)>::new(), Vec::new());
    for (position, RecordRow { id, line }) in rows.into_iter().enumerate() {
        let incoming = match read(&line, noun) {
            Ok(incoming) => incoming,
            Err(message) => {
                invalid.push(InvalidRow { position, id: id.or_else(|| line_id(&line)), message });
                continue;
            }
        };
        let id = id.or_else(|| incoming.id.filter(|id| !id.is_empty())).unwrap_or_else(new_id);
        let request = incoming.request;
        // Merged parameters become lists, which only some servers split again.
        let is_plain = |input: &Tensor| input.parameters.others.is_empty();
        let share = request.inputs.iter().all(is_plain).then(|| BatchShare::of(&request)).flatten();
        let member = GroupMember { position, id, rows: share.as_ref().map_or(0, |share| share.rows) };
        let form = share.map(|share| share.key);
        match forms.iter_mut().find(|(other, _)| form.is_some() && *other == form) {
            Some((_, rows)) => rows.push((member, request)),
            None => forms.push((form, vec![(member, request)])),
        }
    }
    (forms.into_iter().flat_map(|(_, rows)| RequestGroup::of(rows)).collect(), invalid)
}

impl RequestGroup {
    /// Merges rows of one form.
    fn of(mut rows: Vec<(GroupMember, InferenceRequest)>) -> Vec<Self> {
        let requests: Vec<&InferenceRequest> = rows.iter().map(|(_, request)| request).collect();
        match if rows.len() > 1 { merge::merge(&requests) } else { None } {
            Some(request) => vec![Self { request, members: rows.into_iter().map(|(member, _)| member).collect() }],
            // A single row, or rows that cannot be merged after all.
            None => rows.drain(..).map(|(member, request)| Self { request, members: vec![member] }).collect(),
        }
    }

    /// Creates the group of a table's rows, and returns it with the invalid rows.
    pub(super) fn of_table(table: TableRequest, outputs: &[RequestedOutput]) -> (Vec<Self>, Vec<InvalidRow>) {
        let TableRequest { mut request, positions, invalid } = table;
        request.outputs = outputs.to_vec();
        // Rows of a table have no ids.
        let members: Vec<_> =
            positions.into_iter().map(|position| GroupMember { position, id: String::new(), rows: 1 }).collect();
        (if members.is_empty() { Vec::new() } else { vec![Self { request, members }] }, invalid)
    }

    /// Returns the request for some of the rows. Its tensors share their data with the whole request.
    pub(super) fn request(&self, members: Range<usize>) -> InferenceRequest {
        let id = match &self.members[members.clone()] {
            [one] if !one.id.is_empty() => one.id.clone(),
            _ => new_id(),
        };
        if members.len() == self.members.len() {
            return InferenceRequest { id, ..self.request.clone() };
        }
        let rows = |members: &[GroupMember]| members.iter().map(|member| member.rows).sum::<usize>();
        let start = rows(&self.members[..members.start]);
        let end = start + rows(&self.members[members]);
        let slice = |input: &Tensor| input.slice_rows(start..end).expect("all inputs have the rows of all members");
        InferenceRequest {
            id,
            parameters: self.request.parameters.clone(),
            inputs: self.request.inputs.iter().map(slice).collect(),
            outputs: self.request.outputs.clone(),
            ..InferenceRequest::default()
        }
    }
}

fn new_id() -> String {
    Uuid::new_v4().to_string()
}

/// Reads a request: an object with `inputs`, a list of inputs, or one input.
fn read(line: &InputLine, noun: &str) -> Result<JsonRequest, String> {
    let text = match line {
        InputLine::Text(text) => text.trim_ascii(),
        InputLine::TooLong(found) => {
            return Err(format!("the {noun} has {found} bytes, over the limit of {MAX_LINE}"));
        }
    };
    // The model may be in Python.
    let read_request = |text: &[u8]| read_request_with(text, None, TensorRule::AsSent);
    let wrapped = |start: &[u8], end: &[u8]| read_request(&[start, text, end].concat());
    let read = match text.first() {
        None => return Err(format!("the {noun} is empty")),
        Some(b'[') => wrapped(b"{\"inputs\":", b"}"),
        Some(_) => match read_request(text) {
            Err(missing @ ReadError::Missing { .. }) => wrapped(b"{\"inputs\":[", b"]}").map_err(|_| missing),
            other => other,
        },
    };
    read.map_err(|error| error.to_string())
}

/// Returns the id of a line, even if the rest of it is invalid.
pub(super) fn line_id(line: &InputLine) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        id: Option<String>,
    }
    let InputLine::Text(text) = line else { return None };
    serde_json::from_slice::<Named>(text).ok()?.id.filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> InputLine {
        InputLine::Text(text.as_bytes().to_vec())
    }

    fn row(id: &str, value: i32) -> InputLine {
        let input = format!(r#"{{"name":"x","shape":[1,1],"datatype":"INT32","data":[{value}]}}"#);
        line(&format!(r#"{{"id":"{id}","inputs":[{input}]}}"#))
    }

    fn values(request: &InferenceRequest) -> Vec<i32> {
        request.inputs[0].elements::<i32>().unwrap().to_vec()
    }

    #[test]
    fn prepare_groups_rows_of_one_form() {
        let lone =
            r#"{"id":"p","inputs":[{"name":"x","shape":[1,1],"datatype":"INT32","data":[9],"parameters":{"k":1}}]}"#;
        let other = r#"{"id":"o","inputs":[{"name":"x","shape":[1,2],"datatype":"INT32","data":[7,8]}]}"#;
        let (groups, bad) =
            prepare(vec![row("a", 1), line(other), row("b", 2), line("{"), line(lone), row("c", 3), line(lone)]);
        let shown: Vec<_> = groups
            .iter()
            .map(|group| {
                let places: Vec<_> = group.members.iter().map(|member| member.position).collect();
                (places, values(&group.request(0..group.members.len())))
            })
            .collect();
        let expected = [(vec![0, 2, 5], vec![1, 2, 3]), (vec![1], vec![7, 8]), (vec![4], vec![9]), (vec![6], vec![9])];
        assert_eq!(shown, expected, "a row with input parameters is not merged");
        assert_eq!(bad.len(), 1);
        assert_eq!(values(&groups[0].request(1..3)), [2, 3]);
        assert_eq!(groups[0].request(1..2).id, "b");
        assert_eq!(groups[0].request(1..3).id.len(), 36, "a request of several rows has a new id");
    }

    #[test]
    fn prepare_accepts_bare_inputs() {
        let input = r#"{"name":"x","shape":[1],"datatype":"INT32","data":[5]}"#;
        for text in
            [format!(r#"{{"inputs":[{input}]}}"#), format!("[{input}]"), input.to_owned(), format!(" {input}\r")]
        {
            let (groups, bad) = prepare(vec![line(&text)]);
            assert_eq!((values(&groups[0].request(0..1)), bad.len()), (vec![5], 0), "{text}");
        }
    }

    #[test]
    fn prepare_invalid_rows_name_the_reason() {
        let message = |line: InputLine| prepare(vec![line]).1.remove(0);
        assert_eq!(message(line(" \r")).message, "the line is empty");
        assert_eq!(message(line("{]")).message, "invalid JSON at byte 1: expected a key in double quotes");
        assert_eq!(message(line(r#"{"a":1}"#)).message, "`inputs` is required");
        let bad = message(line(r#"{"id":"a","inputs":[{"name":"x","shape":[1],"datatype":"INT99","data":[1]}]}"#));
        assert_eq!(bad.id.as_deref(), Some("a"));
        assert!(bad.message.starts_with("`inputs[0].datatype`: unknown datatype `INT99`"), "{}", bad.message);
        assert_eq!(message(InputLine::TooLong(7)).message, "the line has 7 bytes, over the limit of 33554432");
    }
}
