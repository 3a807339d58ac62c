//! Answers that are too long to be written as a whole: their JSON is written in pieces, so that one of them is in memory at a time.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;

use super::binary::BinaryOutputs;
use super::v1::{common_rows, v1_shape, write_member_name};
use super::writer::{
    NonFinite, WriteError, find_non_finite, is_irregular, sent_data, write_numbers, write_response_head,
    write_tensor_head, write_text,
};
use crate::types::{InferenceResponse, Tensor, TensorData};

/// The length of a piece in bytes. Some are longer, by a quarter at most unless names or parameters are longer than that.
pub const PIECE: usize = 512 << 10;

/// The protocol of an answer.
#[derive(Debug, Clone)]
pub enum AnswerForm {
    /// The Open Inference Protocol, with some outputs as binary data after the JSON.
    V2(BinaryOutputs),
    /// `KServe`'s V1 protocol.
    V1,
}

/// An answer whose JSON is written in pieces. Together, they are what [`write_response`](super::write_response) or
/// [`write_v1_response`](super::write_v1_response) returns.
#[derive(Debug, Clone)]
pub struct ResponsePieces {
    outputs: Vec<Tensor>,
    layout: PiecesLayout,
    /// The data of each output that follows the JSON. Empty if all of it is in the JSON.
    binary: Vec<Option<Bytes>>,
    non_finite: NonFinite,
    /// The length of a piece.
    length: usize,
    /// The text before the first part, until it is written.
    start: Vec<u8>,
    /// Each has the data of one output, or of one row of it.
    parts: usize,
    /// The part that is being written.
    part: usize,
    position: PartPosition,
    has_ended: bool,
}

/// The form of an answer, from which the text around its parts follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PiecesLayout {
    /// The list of tensors of V2.
    Tensors,
    /// The data of the only output.
    Data,
    /// An object with the data of each output.
    Members,
    /// A list of objects with one row of each output.
    Rows,
}

/// What has been written of a part.
#[derive(Debug, Clone, Copy, Default)]
struct PartPosition {
    has_begun: bool,
    /// The number of elements, or of bytes of data that is kept as JSON.
    written: usize,
    /// The number of bytes of the next element.
    offset: usize,
    /// Whether that element is written as base64.
    is_base64: bool,
}

/// The elements of a part, and the lists that they are written as.
struct PartElements<'a> {
    output: &'a Tensor,
    shape: Cow<'a, [usize]>,
    first: usize,
    count: usize,
}

impl ResponsePieces {
    /// Checks that JSON can hold a response, whose pieces then do not fail. Takes time in proportion to the response.
    ///
    /// # Errors
    ///
    /// Fails as when the response is written as a whole.
    pub fn new(response: InferenceResponse, form: &AnswerForm, non_finite: NonFinite) -> Result<Self, WriteError> {
        let mut start = Vec::new();
        let (layout, binary) = match form {
            AnswerForm::V2(wanted) => {
                write_response_head(&mut start, &response);
                let raw = |output: &Tensor| {
                    let is_binary = wanted.wants(&output.name) && !is_irregular(output);
                    is_binary.then(|| output.to_raw()).transpose()
                };
                let binary = response.outputs.iter().map(raw).collect::<Result<Vec<_>, _>>()?;
                (PiecesLayout::Tensors, if binary.iter().all(Option::is_none) { Vec::new() } else { binary })
            }
            AnswerForm::V1 => {
                start.extend_from_slice(b"{\"predictions\":");
                let layout = match &response.outputs[..] {
                    [_] => PiecesLayout::Data,
                    [] => PiecesLayout::Rows,
                    outputs if common_rows(outputs).is_some() => PiecesLayout::Rows,
                    _ => PiecesLayout::Members,
                };
                match layout {
                    PiecesLayout::Members => start.push(b'{'),
                    PiecesLayout::Rows => start.push(b'['),
                    PiecesLayout::Data | PiecesLayout::Tensors => {}
                }
                (layout, Vec::new())
            }
        };
        let outputs = response.outputs;
        let is_text = |index: usize| binary.get(index).is_none_or(Option::is_none);
        outputs
            .iter()
            .enumerate()
            .filter(|(index, _)| is_text(*index))
            .try_for_each(|(_, output)| check(output, layout, non_finite))?;
        let rows = if layout == PiecesLayout::Rows { common_rows(&outputs).unwrap_or_default() } else { 1 };
        Ok(Self {
            parts: rows.saturating_mul(outputs.len()),
            outputs,
            layout,
            binary,
            non_finite,
            length: PIECE,
            start,
            part: 0,
            position: PartPosition::default(),
            has_ended: false,
        })
    }

    /// Returns the binary data that follows the JSON.
    pub fn binary(&self) -> Vec<Bytes> {
        self.binary.iter().flatten().cloned().collect()
    }

    /// Returns the number of bytes of the pieces that are not written yet, by writing them. They are not kept.
    ///
    /// # Errors
    ///
    /// Does not fail, since the response has been checked.
    pub fn json_length(&self) -> Result<usize, WriteError> {
        let (mut pieces, mut length) = (self.clone(), 0);
        while let Some(piece) = pieces.next_piece()? {
            length += piece.len();
        }
        Ok(length)
    }

    /// Writes the next piece. Returns `None` after the last one.
    ///
    /// # Errors
    ///
    /// Does not fail, since the response has been checked.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, WriteError> {
        if self.has_ended {
            return Ok(None);
        }
        let mut text = Vec::with_capacity(self.length + self.length / 4);
        text.append(&mut self.start);
        while text.len() < self.length && !self.has_ended {
            self.write_some(&mut text)?;
        }
        Ok(Some(text))
    }

    /// Writes the beginning of a part, some of its data, its end, or the end of the answer.
    fn write_some(&mut self, text: &mut Vec<u8>) -> Result<(), WriteError> {
        if self.part == self.parts {
            text.extend_from_slice(match self.layout {
                PiecesLayout::Tensors | PiecesLayout::Rows => b"]}",
                PiecesLayout::Data => b"}",
                PiecesLayout::Members => b"}}",
            });
            self.has_ended = true;
            return Ok(());
        }
        let count = self.outputs.len();
        let (row, index) = (self.part / count, self.part % count);
        let output = &self.outputs[index];
        if !self.position.has_begun {
            self.position.has_begun = true;
            let binary = self.binary.get(index).and_then(Option::as_ref).map(Bytes::len);
            begin_part(text, self.layout, (row, index), output, binary);
            if binary.is_none() {
                return Ok(());
            }
        } else if let Some(data) = kept_text(output, self.layout) {
            let end = data.len().min(self.position.written + self.length);
            text.extend_from_slice(&data[self.position.written..end]);
            self.position.written = end;
            if end < data.len() {
                return Ok(());
            }
        } else {
            let part = part_elements(output, self.layout, row, self.parts / count);
            part.write(text, &mut self.position, self.length, self.layout, self.non_finite)?;
            if self.position.written < part.count {
                return Ok(());
            }
        }
        let is_end_of_object = match self.layout {
            PiecesLayout::Tensors => true,
            PiecesLayout::Rows => index + 1 == count,
            PiecesLayout::Data | PiecesLayout::Members => false,
        };
        if is_end_of_object {
            text.push(b'}');
        }
        self.part += 1;
        self.position = PartPosition::default();
        Ok(())
    }
}

/// Checks that JSON can hold the data of an output.
fn check(output: &Tensor, layout: PiecesLayout, non_finite: NonFinite) -> Result<(), WriteError> {
    if kept_text(output, layout).is_some() {
        return Ok(());
    }
    match &output.data {
        TensorData::Fixed(bytes) if non_finite == NonFinite::Error => match find_non_finite(bytes, output.datatype) {
            Some((index, found)) => Err(WriteError::NonFinite { output: output.name.clone(), index, found }),
            None => Ok(()),
        },
        TensorData::Variable(elements) if layout == PiecesLayout::Tensors => {
            match elements.iter().position(|element| std::str::from_utf8(element).is_err()) {
                Some(index) => Err(WriteError::NotUtf8 { output: output.name.clone(), index }),
                None => Ok(()),
            }
        }
        TensorData::Fixed(_) | TensorData::Variable(_) | TensorData::Irregular(_) => Ok(()),
    }
}

/// Returns the data of an output that is kept as JSON.
fn kept_text(output: &Tensor, layout: PiecesLayout) -> Option<&[u8]> {
    match &output.data {
        TensorData::Irregular(data) => Some(data.json()),
        TensorData::Fixed(_) | TensorData::Variable(_) if layout == PiecesLayout::Tensors => {
            sent_data(output).map(|data| &data[..])
        }
        TensorData::Fixed(_) | TensorData::Variable(_) => None,
    }
}

/// Writes what precedes the data of a part.
fn begin_part(
    text: &mut Vec<u8>,
    layout: PiecesLayout,
    (row, index): (usize, usize),
    output: &Tensor,
    binary: Option<usize>,
) {
    match layout {
        PiecesLayout::Tensors => {
            if index > 0 {
                text.push(b',');
            }
            write_tensor_head(text, output, binary);
            if binary.is_none() {
                text.extend_from_slice(b",\"data\":");
            }
        }
        PiecesLayout::Data => {}
        PiecesLayout::Members => write_member_name(text, index, output),
        PiecesLayout::Rows => {
            if index == 0 {
                text.extend_from_slice(if row > 0 { b",{" } else { b"{" });
            }
            write_member_name(text, index, output);
        }
    }
}

/// Returns the elements of an output, or of one of its `rows`.
fn part_elements(output: &Tensor, layout: PiecesLayout, row: usize, rows: usize) -> PartElements<'_> {
    let all = output.len();
    let (shape, first, count) = match layout {
        // Rows without elements would not be bounded by the data.
        PiecesLayout::Tensors if output.nested && all > 0 => (Cow::Borrowed(&output.shape[..]), 0, all),
        PiecesLayout::Tensors => (Cow::Owned(vec![all]), 0, all),
        PiecesLayout::Data | PiecesLayout::Members => (Cow::Borrowed(v1_shape(output)), 0, all),
        PiecesLayout::Rows => {
            let count = all / rows;
            (Cow::Borrowed(&v1_shape(output)[1..]), row * count, count)
        }
    };
    PartElements { output, shape, first, count }
}

impl PartElements<'_> {
    /// Writes the next elements, with the brackets of the lists that begin before and end after them.
    fn write(
        &self,
        text: &mut Vec<u8>,
        position: &mut PartPosition,
        length: usize,
        layout: PiecesLayout,
        non_finite: NonFinite,
    ) -> Result<(), WriteError> {
        if self.count == 0 {
            write_empty(text, &self.shape);
            return Ok(());
        }
        let at = position.written;
        if position.offset == 0 {
            if at > 0 {
                text.push(b',');
            }
            text.extend(std::iter::repeat_n(b'[', self.lists_at(at)));
        }
        match &self.output.data {
            TensorData::Fixed(bytes) => {
                let row = self.shape.last().copied().unwrap_or(1);
                let run = (row - at % row).min((length / 128).max(1));
                let (width, first) = (self.output.datatype.width().unwrap_or(1), self.first + at);
                let elements = bytes.get(first * width..(first + run) * width).unwrap_or_default();
                write_numbers(text, elements, self.output.datatype, non_finite).map_err(|(index, found)| {
                    WriteError::NonFinite { output: self.output.name.clone(), index: first + index, found }
                })?;
                position.written += run;
            }
            TensorData::Variable(elements) => {
                let index = self.first + at;
                let element = elements.range(index..index + 1).next().unwrap_or_default();
                let is_text_only = layout == PiecesLayout::Tensors;
                write_element(text, element, position, length, is_text_only)
                    .ok_or_else(|| WriteError::NotUtf8 { output: self.output.name.clone(), index })?;
                if position.offset > 0 {
                    return Ok(());
                }
                position.written += 1;
            }
            TensorData::Irregular(_) => position.written = self.count,
        }
        text.extend(std::iter::repeat_n(b']', self.lists_at(position.written)));
        Ok(())
    }

    /// Returns how many lists begin before, or end before, the element at an index.
    fn lists_at(&self, index: usize) -> usize {
        let mut size = 1;
        let of_whole_lists = |&&dimension: &&usize| {
            size *= dimension;
            index.is_multiple_of(size)
        };
        self.shape.iter().rev().take_while(of_whole_lists).count()
    }
}

/// Writes the lists of a shape without elements.
fn write_empty(text: &mut Vec<u8>, shape: &[usize]) {
    let [length, inner @ ..] = shape else { return };
    let lists = if inner.is_empty() { 0 } else { *length };
    text.push(b'[');
    for index in 0..lists {
        if index > 0 {
            text.push(b',');
        }
        write_empty(text, inner);
    }
    text.push(b']');
}

/// Writes an element of BYTES, or a part of a long one: `position.offset` is 0 after its end. Returns `None` if it has to be text and is not.
fn write_element(
    text: &mut Vec<u8>,
    element: &[u8],
    position: &mut PartPosition,
    length: usize,
    is_text_only: bool,
) -> Option<()> {
    // Escapes are up to six times as long. Groups of three bytes have no padding in base64.
    let most = (length / 96).max(4) * 3;
    let start = position.offset;
    if start == 0 {
        position.is_base64 = !is_text_only && std::str::from_utf8(element).is_err();
        text.extend_from_slice(if position.is_base64 { b"{\"b64\":\"" } else { b"\"" });
    }
    let mut end = element.len().min(start + most);
    if position.is_base64 {
        text.extend_from_slice(BASE64.encode(&element[start..end]).as_bytes());
    } else {
        // Not within a character.
        while element.get(end).is_some_and(|byte| byte & 0xC0 == 0x80) && end > start {
            end -= 1;
        }
        let quoted_from = text.len();
        write_text(text, std::str::from_utf8(&element[start..end]).ok()?);
        text.pop();
        text.remove(quoted_from);
    }
    position.offset = if end < element.len() { end } else { 0 };
    if position.offset == 0 {
        text.extend_from_slice(if position.is_base64 { b"\"}" } else { b"\"" });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::json::{IrregularData, WriteOptions, write_response, write_v1_response};
    use crate::types::{AsSent, BytesElements, Datatype, Parameters};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn bytes_tensor(shape: Vec<usize>, elements: &[Vec<u8>]) -> Tensor {
        Tensor {
            name: "b\"".to_owned(),
            datatype: Datatype::Bytes,
            shape,
            parameters: Parameters::with_content_type("str"),
            data: TensorData::Variable(elements.iter().collect::<BytesElements>()),
            nested: false,
            as_sent: None,
        }
    }

    /// Returns all pieces of a length, and checks that they are not much longer.
    fn pieces(mut pieces: ResponsePieces, length: usize) -> Vec<u8> {
        pieces.length = length;
        let (expected, mut all) = (pieces.json_length().unwrap(), Vec::new());
        while let Some(piece) = pieces.next_piece().unwrap() {
            assert!(!piece.is_empty() && piece.len() <= length + length / 4 + 400, "{} of {length}", piece.len());
            all.extend_from_slice(&piece);
        }
        assert_eq!(pieces.next_piece().unwrap(), None);
        assert_eq!(all.len(), expected);
        all
    }

    fn check_pieces(outputs: &[Tensor], binary: &BinaryOutputs, non_finite: NonFinite, length: usize) {
        let response = InferenceResponse {
            model_name: "m".to_owned(),
            model_version: Some("v1".to_owned()),
            id: "i".to_owned(),
            outputs: outputs.to_vec(),
            ..InferenceResponse::default()
        };
        let options = WriteOptions { binary: binary.clone(), non_finite };
        let v2 = ResponsePieces::new(response.clone(), &AnswerForm::V2(binary.clone()), non_finite);
        match write_response(&response, &options) {
            Ok(whole) => {
                let v2 = v2.unwrap();
                assert_eq!(v2.binary(), whole.binary);
                let text = pieces(v2, length);
                assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&whole.json));
            }
            Err(error) => assert_eq!(v2.unwrap_err(), error),
        }
        let v1 = ResponsePieces::new(response.clone(), &AnswerForm::V1, non_finite);
        match write_v1_response(&response, non_finite) {
            Ok(whole) => {
                let text = pieces(v1.unwrap(), length);
                assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&whole));
            }
            // Of several outputs, another one may be named.
            Err(WriteError::NonFinite { .. }) => assert!(matches!(v1, Err(WriteError::NonFinite { .. }))),
            Err(error) => assert_eq!(v1.unwrap_err(), error),
        }
    }

    #[test]
    fn pieces_without_elements_are_those_of_the_whole_answer() {
        let tensor = |shape: &[usize], values: &[i64]| Tensor::from_elements("y", shape.to_vec(), values).unwrap();
        let cases = [
            vec![],
            vec![tensor(&[], &[7])],
            vec![tensor(&[0], &[])],
            vec![tensor(&[0, 3], &[])],
            vec![tensor(&[2, 0], &[])],
            vec![tensor(&[2, 0, 2], &[]), tensor(&[2], &[1, 2])],
            vec![tensor(&[0], &[]), tensor(&[0, 3], &[])],
            vec![tensor(&[], &[7]), tensor(&[], &[8])],
            vec![tensor(&[1, 1, 2], &[7, 8]), tensor(&[1], &[8])],
        ];
        for mut outputs in cases {
            for nested in [false, true] {
                // A scalar has no lists.
                for output in &mut outputs {
                    output.nested = nested && !output.shape.is_empty();
                }
                check_pieces(&outputs, &BinaryOutputs::default(), NonFinite::Null, 16);
            }
        }
    }

    #[test]
    fn pieces_of_data_that_is_kept_as_json_are_those_of_the_whole_answer() {
        let json = Bytes::from_static(br#"["a", null, [1, 2, 3, 4, 5, 6, 7, 8]]"#);
        let mut irregular = Tensor::from_elements("x", vec![2], &[1_u8, 2]).unwrap();
        irregular.data = TensorData::Irregular(IrregularData::new(json.clone(), "").unwrap());
        let mut sent = Tensor::from_elements("s", vec![2], &[1.0_f32, f32::NAN]).unwrap();
        sent.as_sent = Some(Box::new(AsSent { data: Some(json), ..AsSent::default() }));
        for non_finite in [NonFinite::Null, NonFinite::Error] {
            check_pieces(&[irregular.clone()], &BinaryOutputs::all(true), non_finite, 16);
            check_pieces(&[irregular.clone(), sent.clone()], &BinaryOutputs::default(), non_finite, 16);
        }
    }

    #[test]
    fn pieces_are_refused_before_the_first_one() {
        let text = bytes_tensor(vec![2], &[b"a".to_vec(), b"\xff".to_vec()]);
        check_pieces(std::slice::from_ref(&text), &BinaryOutputs::default(), NonFinite::Null, 16);
        check_pieces(&[text], &BinaryOutputs::all(true), NonFinite::Null, 16);
        for datatype in ["f64", "f32", "f16", "bf16"] {
            let tensor = match datatype {
                "f64" => Tensor::from_elements("y", vec![3], &[1.0, 2.0, f64::NEG_INFINITY]),
                "f32" => Tensor::from_elements("y", vec![3], &[1.0, 2.0, f32::NAN]),
                "f16" => Tensor::from_elements("y", vec![3], &[1.0, 2.0, f32::INFINITY].map(half::f16::from_f32)),
                _ => Tensor::from_elements("y", vec![3], &[1.0, 2.0, f32::NAN].map(half::bf16::from_f32)),
            };
            let tensor = tensor.unwrap();
            for non_finite in [NonFinite::Error, NonFinite::Null, NonFinite::String] {
                check_pieces(std::slice::from_ref(&tensor), &BinaryOutputs::default(), non_finite, 16);
            }
            check_pieces(&[tensor], &BinaryOutputs::all(true), NonFinite::Error, 16);
        }
    }

    proptest! {
        #[test]
        fn pieces_together_are_the_whole_answer(
            rows in 1_usize..5,
            inner in vec(1_usize..4, 0..3),
            other_rows in 1_usize..5,
            seed in any::<f64>(),
            texts in vec(vec(any::<u8>(), 0..3), 5),
            long in ".{0,80}",
            raw in vec(any::<u8>(), 0..200),
            nested in any::<bool>(),
            binary in any::<bool>(),
            count in 1_usize..6,
            length in 12_usize..400,
        ) {
            let shape = [vec![rows], inner].concat();
            let elements: usize = shape.iter().product();
            let values: Vec<f64> =
                std::iter::successors(Some(seed), |value| Some(value * -1.37)).take(elements).collect();
            let integers: Vec<i16> = (0..).take(other_rows).collect();
            let long_texts: Vec<Vec<u8>> = texts.into_iter().chain([long.into_bytes(), raw]).cycle().take(rows).collect();
            let mut outputs = vec![
                Tensor::from_elements("x", shape.clone(), &values).unwrap(),
                bytes_tensor(vec![rows, 1], &long_texts),
                Tensor { name: "bool".to_owned(), datatype: Datatype::Bool, ..Tensor::from_elements("z", vec![rows], &vec![1_u8; rows]).unwrap() },
                Tensor::from_elements("other", vec![other_rows, 1], &integers).unwrap(),
                bytes_tensor(vec![rows], &long_texts.iter().rev().cloned().collect::<Vec<_>>()),
            ];
            outputs.rotate_left(count - 1);
            outputs.truncate(count);
            for output in &mut outputs {
                output.nested = nested;
            }
            let mut wanted = BinaryOutputs::all(binary);
            let mut parameters = serde_json::from_str(r#"{"binary_data":false}"#).unwrap();
            wanted.take_one("x", &mut parameters, str::to_owned).unwrap();
            for non_finite in [NonFinite::Null, NonFinite::Error] {
                check_pieces(&outputs, &wanted, non_finite, length);
            }
        }
    }
}
