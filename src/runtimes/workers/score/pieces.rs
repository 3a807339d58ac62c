//! Long requests in pieces: rows are read, and evaluated while they are in the cache of a core.
//!
//! Rows are evaluated one by one, so that the answer is that of one request, bit for bit. If the answers of pieces do not look like
//! parts of one, or a piece fails, the request is evaluated as one.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;

use super::located::LocatedModel;
use super::request::ReceivedRequest;
use crate::runtimes::workers::frame::Frame;
use crate::runtimes::workers::memory_file::MemoryFile;
use crate::types::{InferenceResponse, Tensor};

/// Answers a request in pieces, on the thread of the caller, which may block. Returns `None` if it must be answered as one, or if `stop` is
/// set.
pub(super) fn answer(
    frame: &Frame,
    memory: &MemoryFile,
    model: &dyn LocatedModel,
    handle: &Handle,
    stop: &AtomicBool,
) -> Option<InferenceResponse> {
    let request = ReceivedRequest::read(frame).ok()?;
    let mut answers = Vec::new();
    for rows in request.pieces()?.ranges() {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let piece = request.piece(&rows, memory).ok()?;
        // The evaluation runs on this thread, since it is one of those that compute.
        let answer = handle.block_on(model.predict(piece)).ok()?;
        if !is_part(&answer, &rows) {
            return None;
        }
        answers.push(answer);
    }
    join(answers)
}

/// Reports whether each output has the rows of a piece.
fn is_part(answer: &InferenceResponse, rows: &Range<usize>) -> bool {
    answer.outputs.iter().all(|output| output.rows() == Some(rows.len()))
}

/// Joins the answers of pieces. Returns `None` if they differ in more than the values of outputs.
fn join(answers: Vec<InferenceResponse>) -> Option<InferenceResponse> {
    let mut parts = answers.into_iter();
    let mut first = parts.next()?;
    let parts: Vec<_> = parts.collect();
    let is_alike = |part: &InferenceResponse| {
        part.parameters == first.parameters
            && *part.headers == *first.headers
            && part.outputs.len() == first.outputs.len()
    };
    if !parts.iter().all(is_alike) {
        return None;
    }
    let outputs = first.outputs.iter().enumerate().map(|(index, output)| {
        let others = parts.iter().map(|part| &part.outputs[index]);
        let all: Vec<&Tensor> = std::iter::once(output).chain(others).collect();
        let has_own_form = |part: &&Tensor| {
            let as_sent = part.as_sent.as_deref();
            as_sent.is_some_and(|as_sent| as_sent.data.is_some() || as_sent.shape.is_some())
        };
        let differs = |part: &&Tensor| {
            (&part.name, &part.parameters, part.nested) != (&output.name, &output.parameters, output.nested)
        };
        if all.iter().any(|part| has_own_form(part) || differs(part)) { None } else { Tensor::concat_rows(&all) }
    });
    first.outputs = outputs.collect::<Option<_>>()?;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, values: &[i8]) -> InferenceResponse {
        let output = Tensor::from_elements(name, vec![values.len()], values).unwrap();
        InferenceResponse { outputs: vec![output], ..InferenceResponse::default() }
    }

    #[test]
    fn answers_of_pieces_are_joined_if_they_are_alike() {
        let joined = join(vec![part("y", &[1, 2]), part("y", &[3])]).unwrap();
        assert_eq!((joined.outputs.len(), &joined.outputs[0]), (1, &part("y", &[1, 2, 3]).outputs[0]));
        assert!(is_part(&joined, &(4..7)) && !is_part(&joined, &(4..8)));
        assert!(join(vec![part("y", &[1]), part("z", &[3])]).is_none());
        assert!(join(vec![part("y", &[1]), InferenceResponse::default()]).is_none());
        assert!(join(Vec::new()).is_none());
        let mut other = part("y", &[3]);
        other.outputs[0].parameters.content_type = Some("np".into());
        assert!(join(vec![part("y", &[1]), other]).is_none());
    }
}
