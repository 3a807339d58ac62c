//! An array of numbers, as written by `numpy.save`.

use std::io::{self, BufReader, Read};

use bytes::Bytes;
use regex_lite::Regex;

use crate::client::lines::InputBytes;
use crate::types::{Datatype, Parameters, Tensor, TensorData};

/// The name of the input.
const INPUT_NAME: &str = "input-0";
/// The limit on the size of the header, in bytes. NumPy's headers have about a hundred.
const MAX_HEADER: usize = 1 << 16;
/// The limit on the size of a row, in bytes.
const MAX_ROW: usize = 32 << 20;

/// A file with an array, whose first dimension is the rows.
pub(in crate::client) struct NpyTable {
    reader: BufReader<Box<dyn InputBytes>>,
    datatype: Datatype,
    /// The shape of one row.
    shape: Vec<usize>,
    row_bytes: usize,
    left: usize,
}

impl NpyTable {
    pub(in crate::client) fn open(reader: Box<dyn InputBytes>) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(256 << 10, reader);
        let header = header(&mut reader)?;
        let wrong = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
        let (datatype, mut shape) = parse(&header).map_err(wrong)?;
        if shape.is_empty() {
            return Err(wrong("the array is a single number, which has no rows".to_owned()));
        }
        let left = shape.remove(0);
        if shape.is_empty() {
            // A single column, as the content type `np` expects.
            shape.push(1);
        }
        let width = datatype.width().unwrap_or(1);
        let row_bytes = shape.iter().try_fold(width, |bytes, dimension| bytes.checked_mul(*dimension));
        let row_bytes = row_bytes.filter(|bytes| (1..=MAX_ROW).contains(bytes));
        let row_bytes = row_bytes
            .ok_or_else(|| wrong(format!("a row of {shape:?} elements is empty or more than {MAX_ROW} bytes")))?;
        Ok(Self { reader, datatype, shape, row_bytes, left })
    }

    /// Returns a tensor of the next rows, at most `max_rows` and about `bytes` bytes, or `None` at the end.
    pub(in crate::client) fn next(&mut self, max_rows: usize, bytes: usize) -> io::Result<Option<(Tensor, u64)>> {
        let rows = (bytes / self.row_bytes).max(1).min(max_rows).min(self.left);
        if rows == 0 {
            return Ok(None);
        }
        let mut buffer = vec![0; rows * self.row_bytes];
        self.reader.read_exact(&mut buffer)?;
        self.left -= rows;
        let taken = buffer.len() as u64;
        let data = TensorData::from_raw(INPUT_NAME, self.datatype, Bytes::from(buffer));
        let data = data.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let shape = [&[rows], &self.shape[..]].concat();
        let parameters = Parameters::with_content_type("np");
        Ok(Some((
            Tensor {
                name: INPUT_NAME.to_owned(),
                datatype: self.datatype,
                shape,
                parameters,
                data,
                nested: false,
                as_sent: None,
            },
            taken,
        )))
    }
}

/// Reads the header in front of the data.
fn header(reader: &mut impl Read) -> io::Result<String> {
    let wrong = |message: &str| io::Error::new(io::ErrorKind::InvalidData, message.to_owned());
    let mut start = [0; 8];
    reader.read_exact(&mut start)?;
    let length = match start {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _] => {
            let mut length = [0; 2];
            reader.read_exact(&mut length)?;
            usize::from(u16::from_le_bytes(length))
        }
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _] => {
            let mut length = [0; 4];
            reader.read_exact(&mut length)?;
            usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX)
        }
        _ => return Err(wrong("it was not written by `numpy.save`")),
    };
    if length > MAX_HEADER {
        return Err(wrong("its header is longer than those of `numpy.save`"));
    }
    let mut header = vec![0; length];
    reader.read_exact(&mut header)?;
    String::from_utf8(header).map_err(|_| wrong("its header is not UTF-8"))
}

/// Parses the datatype and the shape in the header, which is the text of a Python dictionary.
fn parse(header: &str) -> Result<(Datatype, Vec<usize>), String> {
    let find = |pattern: &str| {
        let pattern = Regex::new(pattern).expect("the patterns below are valid");
        pattern.captures(header).and_then(|found| Some(found.get(1)?.as_str().to_owned()))
    };
    let missing = |what: &str| format!("its header has no valid `{what}`");
    let Some(descr) = find("'descr': *'([^']*)'") else {
        return Err("its elements are records: expected numbers".to_owned());
    };
    let datatype = match descr.trim_start_matches(['<', '|', '=']) {
        "b1" => Datatype::Bool,
        "i1" => Datatype::Int8,
        "i2" => Datatype::Int16,
        "i4" => Datatype::Int32,
        "i8" => Datatype::Int64,
        "u1" => Datatype::Uint8,
        "u2" => Datatype::Uint16,
        "u4" => Datatype::Uint32,
        "u8" => Datatype::Uint64,
        "f2" => Datatype::Fp16,
        "f4" => Datatype::Fp32,
        "f8" => Datatype::Fp64,
        _ => return Err(format!("its elements are `{descr}`: expected little-endian numbers or booleans")),
    };
    if find("'fortran_order': *(True|False)").ok_or_else(|| missing("fortran_order"))? == "True" {
        return Err(
            "it is in Fortran order (`fortran_order`): save `numpy.ascontiguousarray(array)` instead".to_owned()
        );
    }
    let shape = find(r"'shape': *\(([0-9, ]*)\)").ok_or_else(|| missing("shape"))?;
    let dimensions = shape.split(',').map(str::trim).filter(|text| !text.is_empty());
    let shape: Option<Vec<usize>> = dimensions.map(|text| text.parse().ok()).collect();
    Ok((datatype, shape.ok_or_else(|| missing("shape"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Box<dyn InputBytes> {
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        Box::new(io::Cursor::new([b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()))
    }

    #[test]
    fn npy_table_returns_rows() {
        let numbers: Vec<u8> = (1..=6_u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }     \n";
        let mut npy = NpyTable::open(file(header, &numbers)).unwrap();
        let (tensor, taken) = npy.next(2, 1 << 20).unwrap().unwrap();
        assert_eq!((tensor.shape.as_slice(), taken), ([2, 2].as_slice(), 16));
        assert_eq!(tensor.elements::<f32>().unwrap().as_ref(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(npy.next(2, 1).unwrap().unwrap().0.shape, [1, 2], "at least one row");
        assert!(npy.next(2, 1).unwrap().is_none());

        let column = "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }";
        let mut npy = NpyTable::open(file(column, &[1, 0])).unwrap();
        assert_eq!(npy.next(9, 9).unwrap().unwrap().0.shape, [2, 1]);
        let mut short = NpyTable::open(file(column, &[1])).unwrap();
        assert_eq!(short.next(9, 9).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn npy_table_rejects_unsupported_arrays() {
        let message = |header: &str| NpyTable::open(file(header, &[])).err().unwrap().to_string();
        let of = |descr: &str, order: &str, shape: &str| {
            message(&format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"))
        };
        assert_eq!(of("'>f4'", "False", "(1,)"), "its elements are `>f4`: expected little-endian numbers or booleans");
        assert_eq!(of("[('a', '<f4')]", "False", "(1,)"), "its elements are records: expected numbers");
        assert!(of("'<f4'", "True", "(2, 2)").contains("fortran_order"));
        assert_eq!(of("'<f4'", "False", "()"), "the array is a single number, which has no rows");
        assert!(of("'<f8'", "False", "(1, 99999999999)").contains("more than 33554432 bytes"));
        let error = NpyTable::open(Box::new(io::Cursor::new(b"PK\x03\x04....".to_vec()))).err().unwrap();
        assert_eq!(error.to_string(), "it was not written by `numpy.save`");
    }
}
