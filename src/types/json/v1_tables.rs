//! Tables in requests of KServe's V1 protocol, in the forms that `pandas.DataFrame` reads besides an object of lists: an object of
//! values by row, as `DataFrame.to_dict()` writes it, and a list of objects, one for each row. Missing values are `null`.
//!
//! Values stay slices of the body until their column is read.

use indexmap::IndexMap;

use super::ReadError;
use super::cursor::Cursor;
use super::limits::JsonLimits;
use super::v1::{V1Error, V1Key, base64_of};

/// The columns of all instances, whose rows follow each other.
pub(super) struct Table<'t> {
    key: V1Key,
    /// The values of each column with their rows. If a row occurs twice, the last value counts.
    columns: IndexMap<String, Vec<(usize, &'t [u8])>>,
    rows: usize,
    values: usize,
}

/// The form of the columns of one instance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ColumnForm {
    ByRow,
    List,
    Value,
}

/// Reports whether the cursor is before a table in one of these forms.
pub(super) fn is_table(cursor: &Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    if ahead.take(b'[') {
        return ahead.peek() == Some(b'{');
    }
    if !ahead.take(b'{') || ahead.peek() != Some(b'"') || ahead.span().is_err() || !ahead.take(b':') {
        return false;
    }
    ahead.peek() == Some(b'{') && !matches!(base64_of(&mut ahead), Ok(Some(_)))
}

impl<'t> Table<'t> {
    /// Reads a list of instances, of which each is a table.
    pub(super) fn read(cursor: &mut Cursor<'t>, key: V1Key, limits: &mut JsonLimits) -> Result<Self, V1Error> {
        let mut table = Self { key, columns: IndexMap::new(), rows: 0, values: 0 };
        cursor.array(|cursor, index| match cursor.byte() {
            Some(b'[') => table.read_rows(cursor, index, limits),
            Some(b'{') => table.read_columns(cursor, index, limits),
            _ => Err(V1Error::Mixed { key, index, expected: "a table" }),
        })?;
        Ok(table)
    }

    /// Returns the name of each column and the JSON of its values, of which missing ones are `null`.
    ///
    /// # Errors
    ///
    /// Fails if there are more missing values than bytes in the body, `length`.
    pub(super) fn into_columns(self, length: usize) -> Result<impl Iterator<Item = (String, Vec<u8>)>, V1Error> {
        let Self { key, columns, rows, values } = self;
        if columns.is_empty() {
            return Err(V1Error::NoColumns { key });
        }
        if rows.saturating_mul(columns.len()) > values.saturating_add(length) {
            return Err(V1Error::Sparse { key, rows, columns: columns.len() });
        }
        Ok(columns.into_iter().map(move |(name, values)| {
            let mut cells: Vec<Option<&[u8]>> = vec![None; rows];
            for (row, value) in values {
                cells[row] = Some(value);
            }
            let mut text = vec![b'['];
            for (row, cell) in cells.into_iter().enumerate() {
                if row > 0 {
                    text.push(b',');
                }
                text.extend_from_slice(cell.unwrap_or(b"null"));
            }
            text.push(b']');
            (name, text)
        }))
    }

    /// Reads a list of objects, one for each row.
    fn read_rows(&mut self, cursor: &mut Cursor<'t>, index: usize, limits: &mut JsonLimits) -> Result<(), V1Error> {
        cursor.array(|cursor, _| {
            let is_row = cursor.byte() == Some(b'{') && base64_of(&mut cursor.clone())?.is_none();
            if !is_row {
                return Err(V1Error::Mixed { key: self.key, index, expected: "a list of objects of columns" });
            }
            let row = self.rows;
            self.rows += 1;
            cursor.object(|cursor, name| {
                let column = self.column(cursor, name, limits)?;
                let value = cursor.span()?;
                self.set(column, row, value);
                Ok(())
            })
        })
    }

    /// Reads an object of columns: objects of values by row, lists, or one value each.
    fn read_columns(&mut self, cursor: &mut Cursor<'t>, index: usize, limits: &mut JsonLimits) -> Result<(), V1Error> {
        let key = self.key;
        let first_row = self.rows;
        let mut labels: IndexMap<Vec<u8>, ()> = IndexMap::new();
        // The form, the name and the number of rows of the first column.
        let mut first: Option<(ColumnForm, usize, usize)> = None;
        cursor.object::<V1Error>(|cursor, name| {
            let column = self.column(cursor, name, limits)?;
            let mut rows = 1;
            let form = match cursor.byte() {
                Some(b'{') => {
                    cursor.object::<ReadError>(|cursor, label| {
                        let row = if let Some(row) = labels.get_index_of(label) {
                            row
                        } else {
                            limits.add_parts(1)?;
                            labels.insert(label.to_vec(), ());
                            labels.len() - 1
                        };
                        let value = cursor.span()?;
                        self.set(column, first_row + row, value);
                        Ok(())
                    })?;
                    ColumnForm::ByRow
                }
                Some(b'[') => {
                    rows = 0;
                    cursor.array::<ReadError>(|cursor, row| {
                        rows = row + 1;
                        let value = cursor.span()?;
                        self.set(column, first_row + row, value);
                        Ok(())
                    })?;
                    ColumnForm::List
                }
                _ => {
                    let value = cursor.span()?;
                    self.set(column, first_row, value);
                    ColumnForm::Value
                }
            };
            match first {
                None => first = Some((form, column, rows)),
                Some((expected, ..)) if expected != form => {
                    return Err(V1Error::Mixed { key, index, expected: "an object of columns of one form" });
                }
                Some((ColumnForm::List, name, expected)) if expected != rows => {
                    let (first, column) = (self.name(name), self.name(column));
                    return Err(V1Error::Rows { key, column, found: rows, first, expected });
                }
                Some(_) => {}
            }
            Ok(())
        })?;
        self.rows += match first {
            Some((ColumnForm::List | ColumnForm::Value, _, rows)) => rows,
            Some((ColumnForm::ByRow, ..)) => labels.len(),
            None => 0,
        };
        Ok(())
    }

    /// Returns the index of a column, which is added if it is new.
    fn column(&mut self, cursor: &Cursor<'t>, name: &[u8], limits: &mut JsonLimits) -> Result<usize, ReadError> {
        let name = std::str::from_utf8(name).map_err(|_| cursor.syntax("a key in UTF-8 before this value"))?;
        if let Some(index) = self.columns.get_index_of(name) {
            return Ok(index);
        }
        limits.add_parts(1)?;
        Ok(self.columns.insert_full(name.to_owned(), Vec::new()).0)
    }

    fn set(&mut self, column: usize, row: usize, value: &'t [u8]) {
        self.values += 1;
        self.columns[column].push((row, value));
    }

    /// Returns the beginning of a column's name, for errors.
    fn name(&self, column: usize) -> String {
        self.columns.get_index(column).map(|(name, _)| name.chars().take(100).collect()).unwrap_or_default()
    }
}
