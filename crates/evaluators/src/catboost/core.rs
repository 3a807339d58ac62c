//! The format of `.cbm` files.
//!
//! The core of the model is a `FlatBuffer`. The tables of categories follow it, each a `FlatBuffer` of its own with its size
//! before it. Tables stay slices of the file.

use bytes::Bytes;

use super::flatbuffer::{Buffer, Table};
use super::raw::{
    CatFeature, CtrBase, CtrFeature, CtrTable, CtrType, FloatFeature, ModelInfo, NanTreatment, Node, OneHotFeature,
    Projection, RawModel, Trees,
};
use crate::trees::LoadError;
use crate::trees::error::quote;

/// What files begin with.
pub(super) const SIGNATURE: &[u8] = b"CBM1";
/// The one version of the format.
const FORMAT: &str = "FlabuffersModel_v1";
/// The part that has the tables of categories.
const STATIC_TABLES: &str = "static_provider_v1";

/// Reads a file.
pub(super) fn read(file: &Bytes) -> Result<RawModel, LoadError> {
    let mut cursor = Cursor { file, at: SIGNATURE.len() };
    let core = cursor.sized("the core of the model")?;
    let buffer = Buffer::new(&core);
    let root = buffer.root()?;
    let format = root.text(0)?;
    if format != FORMAT {
        return Err(LoadError::Unsupported { what: "format version", name: quote(&format) });
    }
    let parts = root.texts(3)?;
    if let Some(part) = parts.iter().find(|part| *part != STATIC_TABLES) {
        return Err(LoadError::Unsupported { what: "model part", name: quote(part) });
    }
    let trees = root.table(1)?.ok_or(LoadError::MissingField { field: "ModelTrees" })?;
    for (field, what) in [(12, "text"), (13, "estimated"), (18, "embedding")] {
        if trees.has_elements(field)? {
            return Err(LoadError::Unsupported { what: "kind of features", name: what.to_owned() });
        }
    }
    let dimension = trees.i32(0, 0)?;
    let dimension = usize::try_from(dimension).ok().filter(|dimension| *dimension > 0);
    let bias = trees.list(16, f64::from_le_bytes)?;
    let mut model = RawModel {
        dimension: dimension
            .ok_or_else(|| field("ApproxDimension", "a positive number", &trees.i32(0, 0).unwrap_or(0)))?,
        floats: trees.tables(5)?.map(|table| float_feature(&table?)).collect::<Result<_, _>>()?,
        categories: trees.tables(4)?.map(|table| cat_feature(&table?)).collect::<Result<_, _>>()?,
        one_hots: trees.tables(6)?.map(|table| one_hot(&table?)).collect::<Result<_, _>>()?,
        ctrs: trees.tables(7)?.map(|table| ctr_feature(&table?)).collect::<Result<_, _>>()?,
        trees: read_trees(&trees)?,
        scale: trees.f64(14, 1.0)?,
        bias: if bias.is_empty() { vec![trees.f64(15, 0.0)?] } else { bias },
        info: read_info(&root)?,
        tables: Vec::new(),
    };
    for _ in &parts {
        for _ in 0..cursor.size("the number of tables")? {
            model.tables.push(read_table(&cursor.sized("a table of categories")?)?);
        }
    }
    Ok(model)
}

/// A position in the file.
struct Cursor<'a> {
    file: &'a Bytes,
    at: usize,
}

impl Cursor<'_> {
    fn size(&mut self, reading: &'static str) -> Result<u32, LoadError> {
        let size = self.file.get(self.at..).and_then(|rest| rest.first_chunk::<4>());
        let size = size.ok_or(LoadError::Truncated { offset: self.file.len(), reading })?;
        self.at += 4;
        let size = u32::from_le_bytes(*size);
        // Larger sizes are written differently.
        if size == u32::MAX {
            return Err(LoadError::Unsupported { what: "size of a model part", name: "4 GiB or more".to_owned() });
        }
        Ok(size)
    }

    /// Reads a size, and then as many bytes.
    fn sized(&mut self, reading: &'static str) -> Result<Bytes, LoadError> {
        let size = self.size(reading)?;
        let end = usize::try_from(size).ok().and_then(|size| self.at.checked_add(size));
        let end = end.filter(|end| *end <= self.file.len());
        let end = end.ok_or(LoadError::Truncated { offset: self.file.len(), reading })?;
        let part = self.file.slice(self.at..end);
        self.at = end;
        Ok(part)
    }
}

fn field(field: &'static str, wanted: &'static str, found: &dyn ToString) -> LoadError {
    LoadError::Field { field, wanted, found: quote(&found.to_string()) }
}

fn flat_index(table: &Table<'_>, place: usize) -> Result<usize, LoadError> {
    let index = table.i32(place, -1)?;
    usize::try_from(index).map_err(|_| field("FlatIndex", "the number of a feature", &index))
}

fn float_feature(table: &Table<'_>) -> Result<FloatFeature, LoadError> {
    // A feature without missing values in training ignores its treatment.
    let nan = match (table.u8(0, 0)?, table.u8(5, 0)?) {
        (0, _) | (_, 0 | 1) => NanTreatment::AsFalse,
        (_, 2) => NanTreatment::AsTrue,
        (_, other) => return Err(field("NanValueTreatment", "a known treatment", &other)),
    };
    Ok(FloatFeature {
        index: table.i32(1, -1)?,
        flat: flat_index(table, 2)?,
        borders: table.list(3, f32::from_le_bytes)?,
        name: table.text(4)?,
        nan,
    })
}

fn cat_feature(table: &Table<'_>) -> Result<CatFeature, LoadError> {
    Ok(CatFeature { index: table.i32(0, -1)?, flat: flat_index(table, 1)?, name: table.text(2)? })
}

fn one_hot(table: &Table<'_>) -> Result<OneHotFeature, LoadError> {
    Ok(OneHotFeature { category: table.i32(0, -1)?, values: table.list(1, i32::from_le_bytes)? })
}

#[expect(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
const fn truncate(both: u64) -> u32 {
    both as u32
}

fn ctr_base(table: &Table<'_>) -> Result<CtrBase, LoadError> {
    let combination = table.table(0)?.ok_or(LoadError::MissingField { field: "FeatureCombination" })?;
    // Two values of 32 bits.
    let pair = |bytes: [u8; 8]| {
        let both = u64::from_le_bytes(bytes);
        (truncate(both).cast_signed(), truncate(both >> 32))
    };
    let floats = combination.list(1, pair)?.into_iter();
    let one_hots = combination.list(2, pair)?.into_iter().map(|(index, value)| (index, value.cast_signed()));
    let projection = Projection {
        categories: combination.list(0, i32::from_le_bytes)?,
        floats: floats.collect(),
        one_hots: one_hots.collect(),
    };
    let kind = match table.u8(1, 0)? {
        0 => CtrType::Borders,
        1 => CtrType::Buckets,
        2 => CtrType::Mean { is_binarized: true },
        3 => CtrType::Mean { is_binarized: false },
        4 => CtrType::Counter { is_frequency: false },
        5 => CtrType::Counter { is_frequency: true },
        other => return Err(LoadError::Unsupported { what: "type of statistics", name: other.to_string() }),
    };
    Ok(CtrBase { projection, kind, classifier: table.i32(2, 0)? })
}

fn ctr_feature(table: &Table<'_>) -> Result<CtrFeature, LoadError> {
    let ctr = table.table(0)?.ok_or(LoadError::MissingField { field: "Ctr" })?;
    let base = ctr.table(0)?.ok_or(LoadError::MissingField { field: "Base" })?;
    Ok(CtrFeature {
        base: ctr_base(&base)?,
        target_border: ctr.i32(1, 0)?,
        prior: ctr.f32(2, 0.0)?,
        prior_denominator: ctr.f32(3, 1.0)?,
        shift: ctr.f32(4, 0.0)?,
        scale: ctr.f32(5, 1.0)?,
        borders: table.list(1, f32::from_le_bytes)?,
    })
}

fn read_trees(table: &Table<'_>) -> Result<Trees, LoadError> {
    let splits = table.list(1, i32::from_le_bytes)?;
    let sizes = table.list(2, i32::from_le_bytes)?;
    let starts = table.list(3, i32::from_le_bytes)?;
    let mut start = 0_i32;
    for (index, (size, found)) in sizes.iter().zip(&starts).enumerate() {
        if *found != start {
            // The library would read trees that overlap.
            return Err(LoadError::Unsupported { what: "start of tree", name: format!("{index} at {found}") });
        }
        start = start.saturating_add(*size);
    }
    let distances = table.list(10, |[a, b, c, d]| [[a, b], [c, d]].map(u16::from_le_bytes).map(u32::from))?;
    let values = table.list(11, u32::from_le_bytes)?;
    let nodes = if distances.is_empty() {
        None
    } else if distances.len() == values.len() {
        let nodes = distances.into_iter().zip(values);
        Some(nodes.map(|([left, right], value)| Node { left, right, value }).collect())
    } else {
        let field = "NonSymmetricNodeIdToLeafId";
        return Err(LoadError::Count { field, wanted: distances.len(), found: values.len() });
    };
    let values = table.list(8, f64::from_le_bytes)?;
    Ok(Trees { splits, sizes, values, weights: table.list(9, f64::from_le_bytes)?, nodes })
}

fn read_info(root: &Table<'_>) -> Result<ModelInfo, LoadError> {
    let mut info = ModelInfo::default();
    for entry in root.tables(2)? {
        let entry = entry?;
        let slot = match entry.text(0)?.as_str() {
            "params" => &mut info.params,
            "class_params" => &mut info.class_params,
            "binclass_probability_threshold" => &mut info.threshold,
            "catboost_version_info" => &mut info.version,
            _ => continue,
        };
        *slot = Some(entry.text(1)?);
    }
    Ok(info)
}

fn read_table(file: &Bytes) -> Result<CtrTable, LoadError> {
    let buffer = Buffer::new(file);
    let table = buffer.root()?;
    let base = table.table(0)?.ok_or(LoadError::MissingField { field: "ModelCtrBase" })?;
    let slice = |(start, bytes): (usize, &[u8])| file.slice(start..start + bytes.len());
    Ok(CtrTable {
        base: ctr_base(&base)?,
        buckets: slice(table.bytes(1)?),
        blob: slice(table.bytes(2)?),
        denominator: table.i32(3, 0)?,
        classes: table.i32(4, 0)?,
    })
}
