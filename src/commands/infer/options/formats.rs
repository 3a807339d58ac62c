//! What rows are: the format of the input, the columns and outputs of tables, and the rows of a request.

use std::fmt::Display;
use std::num::NonZeroUsize;

use clap::ValueEnum;

use super::reader::{ArgumentReader, parse};
use crate::cli::infer::{InferArgs, InferVariable, InputFormat, defaults};
use crate::client::{InputOrigin, SourceFormat, is_openai_batch};
use crate::types::{Datatype, RequestedOutput};

/// Returns the format that is read without an engine. Fails for those that only engines read.
fn source_format(format: InputFormat) -> Result<SourceFormat, String> {
    Ok(match format {
        InputFormat::Requests => SourceFormat::Requests,
        InputFormat::Openai => SourceFormat::OpenAi,
        InputFormat::Rows => SourceFormat::Objects,
        InputFormat::Csv => SourceFormat::Delimited(b','),
        InputFormat::Tsv => SourceFormat::Delimited(b'\t'),
        InputFormat::Npy => SourceFormat::Npy,
        InputFormat::Parquet => SourceFormat::Parquet,
        InputFormat::Orc | InputFormat::Catalog => {
            return Err("--input-format: `orc` and `catalog` are read by engines: set --engine".to_owned());
        }
    })
}

impl ArgumentReader {
    pub(super) fn format(&mut self, args: &InferArgs, input: Option<&InputOrigin>) -> SourceFormat {
        let given =
            self.value(args.input_format, &InferVariable::INPUT_FORMAT, |text| InputFormat::from_str(text, true));
        let format = match (given, input) {
            (None, Some(InputOrigin::File(path))) => match SourceFormat::of(path) {
                SourceFormat::Requests if is_openai_batch(path) => SourceFormat::OpenAi,
                format => format,
            },
            (None, _) => SourceFormat::Requests,
            (Some(format), _) => self.checked(source_format(format)).unwrap_or(SourceFormat::Requests),
        };
        if matches!(input, Some(InputOrigin::Topic(_))) && format != SourceFormat::Requests {
            self.problems.push("--input-format: the records of a topic are requests".to_owned());
        }
        format
    }

    pub(super) fn batch_size(
        &mut self,
        args: &InferArgs,
        format: SourceFormat,
        is_embedded: bool,
        warnings: &mut Vec<String>,
    ) -> NonZeroUsize {
        let given = self.value(args.batch_size, &InferVariable::BATCH_SIZE, parse);
        match given {
            Some(size) if format == SourceFormat::OpenAi && size > NonZeroUsize::MIN => {
                let message = "--batch-size has no effect on a batch of OpenAI's API, whose lines are requests";
                warnings.push(message.to_owned());
                NonZeroUsize::MIN
            }
            Some(size) => size,
            None if !format.is_table() => NonZeroUsize::MIN,
            None if is_embedded => defaults::EMBEDDED_BATCH_SIZE,
            None => defaults::TABLE_BATCH_SIZE,
        }
    }

    /// Returns the outputs to request for rows and tables.
    pub(super) fn outputs(&mut self, given: &[String], format: SourceFormat) -> Vec<RequestedOutput> {
        if !given.is_empty() && matches!(format, SourceFormat::Requests | SourceFormat::OpenAi) {
            let message =
                "--outputs applies to rows and tables; lines that are requests name their outputs in `outputs`";
            self.problems.push(message.to_owned());
        }
        if given.iter().any(|name| name.trim().is_empty()) {
            self.problems
                .push("--outputs: expected names of outputs, separated by commas, but one is empty".to_owned());
        }
        let output = |name: &String| RequestedOutput { name: name.trim().to_owned(), ..RequestedOutput::default() };
        given.iter().map(output).collect()
    }

    pub(super) fn column_types(&mut self, given: &[String], format: SourceFormat) -> Vec<(String, Datatype)> {
        if !(given.is_empty() || matches!(format, SourceFormat::Delimited(_) | SourceFormat::Objects)) {
            let message = "--column-type applies only to the input formats csv, tsv and rows";
            self.problems.push(message.to_owned());
            return Vec::new();
        }
        let read = |entry: &String| {
            let wrong = |reason: &dyn Display| format!("--column-type: `{entry}`: {reason}");
            let (name, datatype) = entry.rsplit_once('=').ok_or_else(|| wrong(&"expected COLUMN=DATATYPE"))?;
            match datatype.parse().map_err(|error| wrong(&error))? {
                Datatype::Fp16 | Datatype::Bf16 => Err(wrong(&"half precision is not supported for text; use FP32")),
                datatype => Ok((name.to_owned(), datatype)),
            }
        };
        given.iter().filter_map(|entry| self.checked(read(entry))).collect()
    }
}
