//! Converts lines of answers to columns when a run is complete.
//!
//! A run always writes lines, because it can resume after them and need not know the columns of later answers. The lines are converted
//! at the end. The answers of a model usually have the columns of the first one, and a single pass writes them. If a row has other
//! columns, one more pass finds the columns of all rows, and another one writes them.

mod csv;
#[cfg(feature = "parquet")]
mod parquet;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

use super::row::FAILURE_PREFIX;
use crate::types::json::read_response;
use crate::types::{Datatype, Tensor, TensorData};

/// The names of the columns of every row: its index, its id, and the reason why it failed.
const INDEX: &str = "batch_index";
const ID: &str = "id";
const ERROR: &str = "error";
/// The limit on the number of columns.
const MAX_COLUMNS: usize = 10_000;

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputFormat {
    Lines,
    Delimited(u8),
    Parquet,
}

impl OutputFormat {
    /// Returns the format for a file's extension.
    pub(super) fn of(path: &Path) -> Self {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "csv" => Self::Delimited(b','),
            "tsv" => Self::Delimited(b'\t'),
            "parquet" | "pq" => Self::Parquet,
            _ => Self::Lines,
        }
    }

    /// Returns what every file of columns starts with, `None` for lines.
    pub(super) fn start(self) -> Option<Vec<u8>> {
        match self {
            Self::Lines => None,
            Self::Delimited(delimiter) => Some([INDEX.as_bytes(), &[delimiter], ID.as_bytes(), &[delimiter]].concat()),
            Self::Parquet => Some(b"PAR1".to_vec()),
        }
    }

    /// Reports whether this executable can write the format.
    pub(super) const fn is_supported(self) -> bool {
        cfg!(feature = "parquet") || !matches!(self, Self::Parquet)
    }
}

/// The columns of one output of a model: one for each element that a row has.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ColumnGroup {
    name: String,
    datatype: Datatype,
    width: usize,
}

/// A row of the output.
#[derive(Debug)]
struct OutputRow {
    index: i64,
    id: String,
    outputs: Vec<Tensor>,
    /// Why the row has no outputs.
    error: Option<String>,
}

/// Writes rows as columns.
trait ColumnSink {
    fn row(&mut self, row: &OutputRow) -> io::Result<()>;

    fn finish(self: Box<Self>, failed: u64) -> io::Result<()>;
}

/// Writes the answers of a complete run to another file, in columns.
pub(super) fn convert(lines: &Path, form: OutputFormat, to: &Path) -> io::Result<()> {
    let mut groups = Vec::new();
    for_each_row(lines, |row| {
        row.outputs.iter().try_for_each(|output| add_output(&mut groups, output))?;
        Ok(groups.is_empty())
    })?;
    if write_columns(lines, form, to, &groups)? {
        return Ok(());
    }
    let mut groups = Vec::new();
    for_each_row(lines, |row| {
        row.outputs.iter().try_for_each(|output| add_output(&mut groups, output)).map(|()| true)
    })?;
    write_columns(lines, form, to, &groups).map(drop)
}

/// Writes the rows in these columns. Stops at the first row that does not fit, and returns whether all rows did.
fn write_columns(lines: &Path, form: OutputFormat, to: &Path, groups: &[ColumnGroup]) -> io::Result<bool> {
    let columns: usize = groups.iter().map(|group| group.width).sum();
    if columns > MAX_COLUMNS {
        return Err(invalid_data(format!(
            "the answers have {columns} columns, over the limit of {MAX_COLUMNS}; they are kept as lines"
        )));
    }
    let file = File::create(to)?;
    let mut sink: Box<dyn ColumnSink> = match form {
        #[cfg(feature = "parquet")]
        OutputFormat::Parquet => Box::new(parquet::ParquetSink::new(file.try_clone()?, groups.to_vec())?),
        OutputFormat::Delimited(delimiter) => {
            Box::new(csv::CsvSink::new(file.try_clone()?, delimiter, groups.to_vec())?)
        }
        _ => return Err(invalid_data("this executable was built without support for the format".to_owned())),
    };
    let mut failed = 0;
    let all = for_each_row(lines, |row| {
        failed += u64::from(row.error.is_some());
        let fits = row.outputs.iter().all(|output| groups.iter().any(|group| group.holds(output)));
        if fits {
            sink.row(&row)?;
        }
        Ok(fits)
    })?;
    if all {
        sink.finish(failed)?;
        file.sync_all()?;
    }
    Ok(all)
}

/// Counts the rows of a file that [`convert`] has written, and how many of them failed.
pub(super) fn count(path: &Path, form: OutputFormat) -> io::Result<(u64, u64)> {
    match form {
        #[cfg(feature = "parquet")]
        OutputFormat::Parquet => parquet::count(path),
        OutputFormat::Delimited(delimiter) => csv::count(path, delimiter),
        _ => Err(invalid_data("this executable was built without support for the format".to_owned())),
    }
}

/// Returns the ids of the rows of a file that [`convert`] has written.
pub(super) fn ids(path: &Path, form: OutputFormat) -> io::Result<Box<dyn Iterator<Item = io::Result<String>> + Send>> {
    match form {
        #[cfg(feature = "parquet")]
        OutputFormat::Parquet => parquet::ids(path),
        OutputFormat::Delimited(delimiter) => csv::ids(path, delimiter),
        _ => Err(invalid_data("this executable was built without support for the format".to_owned())),
    }
}

/// Returns the names of all columns: those of every row, and the outputs' between them. An output's column whose name is taken
/// gets a number after it, from 2 on.
fn column_names(groups: &[ColumnGroup]) -> Vec<String> {
    let mut names = vec![INDEX.to_owned(), ID.to_owned()];
    let mut taken: HashSet<String> = [INDEX, ID, ERROR].map(str::to_owned).into();
    for name in groups.iter().flat_map(ColumnGroup::names) {
        let numbered = (2_u64..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or(name);
        taken.insert(free.clone());
        names.push(free);
    }
    names.push(ERROR.to_owned());
    names
}

/// Adds the columns of an output, or widens those that it has.
fn add_output(groups: &mut Vec<ColumnGroup>, output: &Tensor) -> io::Result<()> {
    if let TensorData::Irregular(data) = &output.data {
        return Err(invalid_data(format!("{}; the answers are kept as lines", data.reason())));
    }
    let Some(group) = groups.iter_mut().find(|group| group.name == output.name) else {
        if groups.len() == MAX_COLUMNS {
            return Err(invalid_data(format!(
                "the answers have more than {MAX_COLUMNS} outputs; they are kept as lines"
            )));
        }
        groups.push(ColumnGroup { name: output.name.clone(), datatype: output.datatype, width: output.len().max(1) });
        return Ok(());
    };
    group.width = group.width.max(output.len());
    if group.datatype != output.datatype {
        // Text can hold values of every datatype.
        group.datatype = Datatype::Bytes;
    }
    Ok(())
}

impl ColumnGroup {
    /// Reports whether an output fits into these columns.
    fn holds(&self, output: &Tensor) -> bool {
        let is_regular = !matches!(output.data, TensorData::Irregular(_));
        let datatype = self.datatype == output.datatype || self.datatype == Datatype::Bytes;
        is_regular && datatype && self.width >= output.len() && self.name == output.name
    }

    /// Returns the names of the columns.
    fn names(&self) -> Vec<String> {
        match self.width {
            1 => vec![self.name.clone()],
            width => (0..width).map(|index| format!("{}[{index}]", self.name)).collect(),
        }
    }
}

/// Calls `take` with each row until it returns false, and returns whether it took all of them.
fn for_each_row(lines: &Path, mut take: impl FnMut(OutputRow) -> io::Result<bool>) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(lines)?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        let row = read(&line);
        let row =
            row.map_err(|reason| invalid_data(format!("cannot read a line of `{}`: {reason}", lines.display())))?;
        if !take(row)? {
            return Ok(false);
        }
        line.clear();
    }
    Ok(true)
}

fn read(line: &[u8]) -> Result<OutputRow, String> {
    let index = |value: Option<&Value>| value.and_then(Value::as_i64).unwrap_or_default();
    if line.starts_with(FAILURE_PREFIX) {
        let line: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let error = text(&line["error"]["msg"]);
        let index = index(line.pointer("/parameters/batch_index"));
        return Ok(OutputRow { index, id: text(&line["id"]), outputs: Vec::new(), error: Some(error) });
    }
    let response = read_response(line, None).map_err(|error| error.to_string())?;
    let index = index(response.parameters.others.get("batch_index"));
    Ok(OutputRow { index, id: response.id, outputs: response.outputs, error: None })
}

fn invalid_data(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// An element of an output.
#[derive(Debug, Clone, Copy, PartialEq)]
enum OutputElement<'a> {
    Bool(bool),
    Integer(i64),
    Unsigned(u64),
    Single(f32),
    Double(f64),
    Text(&'a [u8]),
}

impl OutputElement<'_> {
    fn to_text(self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Unsigned(value) => value.to_string(),
            Self::Single(value) if value.is_nan() => String::new(),
            Self::Single(value) => format!("{value:?}"),
            Self::Double(value) if value.is_nan() => String::new(),
            Self::Double(value) => format!("{value:?}"),
            Self::Text(text) => String::from_utf8_lossy(text).into_owned(),
        }
    }
}

/// Returns the elements of an output.
fn elements(tensor: &Tensor) -> Vec<OutputElement<'_>> {
    let bytes = match &tensor.data {
        TensorData::Variable(elements) => return elements.iter().map(OutputElement::Text).collect(),
        TensorData::Fixed(bytes) => bytes,
        // No column holds it.
        TensorData::Irregular(_) => return Vec::new(),
    };
    macro_rules! numbers {
        ($type:ty, $variant:ident) => {
            bytes
                .chunks_exact(size_of::<$type>())
                .map(|chunk| OutputElement::$variant(bytemuck::pod_read_unaligned::<$type>(chunk).into()))
                .collect()
        };
    }
    match tensor.datatype {
        Datatype::Bool => bytes.iter().map(|byte| OutputElement::Bool(*byte != 0)).collect(),
        Datatype::Uint8 => numbers!(u8, Unsigned),
        Datatype::Uint16 => numbers!(u16, Unsigned),
        Datatype::Uint32 => numbers!(u32, Unsigned),
        Datatype::Uint64 => numbers!(u64, Unsigned),
        Datatype::Int8 => numbers!(i8, Integer),
        Datatype::Int16 => numbers!(i16, Integer),
        Datatype::Int32 => numbers!(i32, Integer),
        Datatype::Int64 => numbers!(i64, Integer),
        Datatype::Fp16 => numbers!(half::f16, Single),
        Datatype::Bf16 => numbers!(half::bf16, Single),
        Datatype::Fp32 => numbers!(f32, Single),
        Datatype::Fp64 => numbers!(f64, Double),
        Datatype::Bytes => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(
        r#"{"model_name":"m","id":"a","parameters":{"batch_index":0},"outputs":[{"name":"class","shape":[1,1],"datatype":"INT64","data":[7]},{"name":"p","shape":[1,2],"datatype":"FP32","data":[0.1,null]}]}"#,
        "\n",
        r#"{"parameters":{"batch_index":1},"id":"b","error":{"status":"inference error","msg":"no, \"x\""}}"#,
        "\n",
        r#"{"model_name":"m","id":"","parameters":{"batch_index":2},"outputs":[{"name":"p","shape":[1,3],"datatype":"FP32","data":[1,2.5,1e10]},{"name":"t","shape":[1],"datatype":"BYTES","data":["é,"]}]}"#,
        "\n",
    );

    fn converted(form: OutputFormat) -> tempfile::TempDir {
        converted_from(LINES, form)
    }

    fn converted_from(lines: &str, form: OutputFormat) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("lines"), lines).unwrap();
        convert(&folder.path().join("lines"), form, &folder.path().join("columns")).unwrap();
        folder
    }

    #[test]
    fn convert_writes_delimited_values() {
        let folder = converted(OutputFormat::Delimited(b','));
        let expected = "batch_index,id,class,p[0],p[1],p[2],t,error\n\
                        0,a,7,0.1,,,,\n\
                        1,b,,,,,,\"no, \"\"x\"\"\"\n\
                        2,,,1.0,2.5,10000000000.0,\"é,\",\n";
        let path = folder.path().join("columns");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(count(&path, OutputFormat::Delimited(b',')).unwrap(), (3, 1));
    }

    #[test]
    fn convert_renames_columns_whose_names_are_taken() {
        let outputs =
            [("id", 1), ("error", 1), ("p", 2), ("p[0]", 1), ("id_2", 1), ("batch_index", 1)].map(|(name, width)| {
                let data = vec![7; width];
                serde_json::json!({"name": name, "shape": [1, width], "datatype": "INT64", "data": data})
            });
        let line =
            serde_json::json!({"model_name": "m", "id": "a", "parameters": {"batch_index": 0}, "outputs": outputs});
        let line = format!("{line}\n");
        let expected = "batch_index,id,id_2,error_2,p[0],p[1],p[0]_2,id_2_2,batch_index_2,error\n0,a,7,7,7,7,7,7,7,\n";
        let folder = converted_from(&line, OutputFormat::Delimited(b','));
        let path = folder.path().join("columns");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        let read_ids = |path: &Path, form| ids(path, form).unwrap().collect::<io::Result<Vec<_>>>().unwrap();
        assert_eq!(read_ids(&path, OutputFormat::Delimited(b',')), ["a"]);
        #[cfg(feature = "parquet")]
        {
            let folder = converted_from(&line, OutputFormat::Parquet);
            let path = folder.path().join("columns");
            assert_eq!(read_ids(&path, OutputFormat::Parquet), ["a"]);
            assert_eq!(count(&path, OutputFormat::Parquet).unwrap(), (1, 0));
        }
    }

    #[test]
    fn convert_reuses_the_columns_of_the_first_answer() {
        let mut lines: Vec<&str> = LINES.lines().collect();
        lines.swap(0, 1);
        lines[2] = r#"{"model_name":"m","id":"c","parameters":{"batch_index":2},"outputs":[{"name":"p","shape":[1,1],"datatype":"FP32","data":[3]}]}"#;
        let folder = converted_from(&format!("{}\n", lines.join("\n")), OutputFormat::Delimited(b','));
        let expected = "batch_index,id,class,p[0],p[1],error\n\
                        1,b,,,,\"no, \"\"x\"\"\"\n\
                        0,a,7,0.1,,\n\
                        2,c,,3.0,,\n";
        assert_eq!(std::fs::read_to_string(folder.path().join("columns")).unwrap(), expected);
    }

    #[test]
    fn convert_keeps_answers_that_only_json_can_hold_as_lines() {
        let line = |index: usize, data: &str| {
            let output = format!(r#"{{"name":"t","shape":[2],"datatype":"BYTES","data":{data}}}"#);
            format!(r#"{{"model_name":"m","id":"a","parameters":{{"batch_index":{index}}},"outputs":[{output}]}}"#)
        };
        let folder = tempfile::tempdir().unwrap();
        let (lines, to) = (folder.path().join("lines"), folder.path().join("columns"));
        for (first, second) in [(r#"["a",null]"#, r#"["a","b"]"#), (r#"["a","b"]"#, r#"["a",null]"#)] {
            std::fs::write(&lines, format!("{}\n{}\n", line(0, first), line(1, second))).unwrap();
            let error = convert(&lines, OutputFormat::Delimited(b','), &to).unwrap_err().to_string();
            let expected =
                "input `t`: element 1 is not a valid BYTES: expected a string; the answers are kept as lines";
            assert_eq!(error, expected);
        }
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn convert_writes_parquet() {
        use ::parquet::file::reader::{FileReader, SerializedFileReader};

        let folder = converted(OutputFormat::Parquet);
        let path = folder.path().join("columns");
        assert_eq!(count(&path, OutputFormat::Parquet).unwrap(), (3, 1));
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        let expected = [
            r#"{batch_index: 0, id: "a", class: 7, p[0]: 0.1, p[1]: NaN, p[2]: null, t: null, error: null}"#,
            r#"{batch_index: 1, id: "b", class: null, p[0]: null, p[1]: null, p[2]: null, t: null, error: "no, "x""}"#,
            r#"{batch_index: 2, id: "", class: null, p[0]: 1.0, p[1]: 2.5, p[2]: 10000000000.0, t: "é,", error: null}"#,
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn convert_mixed_datatypes_become_text() {
        let mut groups = Vec::new();
        add_output(&mut groups, &Tensor::from_elements("x", vec![1], &[1_i64]).unwrap()).unwrap();
        add_output(&mut groups, &Tensor::from_elements("x", vec![2], &[1_f64, 2.0]).unwrap()).unwrap();
        assert_eq!(groups, [ColumnGroup { name: "x".to_owned(), datatype: Datatype::Bytes, width: 2 }]);
    }
}
