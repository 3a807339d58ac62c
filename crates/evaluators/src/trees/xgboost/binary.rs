//! The binary format: current until 1.x, writable until 3.0, unreadable to the library from 3.1.

use super::raw::{ModelAttributes, RawBooster, RawModel, RawTree, RawTrees, XgboostVersion};
use crate::trees::error::{LoadError, TreeFault, quote, quote_bytes};

const LEARNER: usize = 136;
const GBTREE: usize = 160;
const GBLINEAR: usize = 136;
const TREE: usize = 148;
const NODE: usize = 20;
const STATISTICS: usize = 16;

/// A position in a binary file.
struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// A parameter block of fixed size.
struct Block<'a>(&'a [u8]);

pub(super) fn read(bytes: &[u8]) -> Result<RawModel, LoadError> {
    let mut cursor = Cursor { bytes, position: 0 };
    if bytes.starts_with(b"binf") {
        cursor.position = 4;
    }
    let start = cursor.position;
    let learner = cursor.block(LEARNER, "the learner's parameters")?;
    let found = || quote_bytes(&bytes[start..]);
    let wanted = "the parameters of a binary XGBoost model";
    let not_a_model = || LoadError::Syntax { offset: start, wanted, found: found() };
    let version = XgboostVersion(learner.u32(20), learner.u32(24));
    let mut model = RawModel {
        base_score: vec![learner.f32(0)],
        num_feature: learner.u32(4) as usize,
        num_class: usize::try_from(learner.i32(8)).map_err(|_| not_a_model())?,
        num_target: learner.u32(28) as usize,
        version,
        ..RawModel::default()
    };
    // Bytes that are not a model are best recognized by the two flags and the names after them.
    let (has_attributes, has_metrics) = (learner.i32(12), learner.i32(16));
    if !matches!((has_attributes, has_metrics), (0 | 1, 0 | 1)) {
        return Err(not_a_model());
    }
    model.objective = cursor.text("the objective's name")?;
    let booster = cursor.text("the booster's name")?;
    model.booster = match booster.as_str() {
        "gbtree" => RawBooster::Trees(cursor.trees(false)?),
        "dart" => RawBooster::Trees(cursor.trees(true)?),
        "gblinear" => {
            cursor.block(GBLINEAR, "the linear booster's parameters")?;
            RawBooster::Linear { weights: cursor.floats("the linear weights")? }
        }
        _ => return Err(LoadError::Unsupported { what: "booster", name: quote(&booster) }),
    };
    if has_attributes == 1 {
        model.attributes = cursor.attributes()?;
    }
    if model.objective == "count:poisson" && version < XgboostVersion(1, 0) {
        cursor.text("the objective's parameter")?;
    }
    Ok(model)
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize, reading: &'static str) -> Result<&'a [u8], LoadError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let taken = rest.get(..count).ok_or(LoadError::Truncated { offset: self.bytes.len(), reading })?;
        self.position += count;
        Ok(taken)
    }

    fn block(&mut self, size: usize, reading: &'static str) -> Result<Block<'a>, LoadError> {
        self.take(size, reading).map(Block)
    }

    /// Reads a count of items of `size` bytes, and their bytes.
    fn counted_items(&mut self, size: usize, reading: &'static str) -> Result<&'a [u8], LoadError> {
        let count = self.count(reading)?;
        let bytes = count.saturating_mul(size);
        self.take(bytes, reading)
    }

    fn count(&mut self, reading: &'static str) -> Result<usize, LoadError> {
        let low = self.take(8, reading)?.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        Ok(usize::try_from(low).unwrap_or(usize::MAX))
    }

    fn text(&mut self, reading: &'static str) -> Result<String, LoadError> {
        Ok(String::from_utf8_lossy(self.counted_items(1, reading)?).into_owned())
    }

    fn floats(&mut self, reading: &'static str) -> Result<Vec<f32>, LoadError> {
        Ok(self.counted_items(4, reading)?.chunks_exact(4).map(|bytes| Block(bytes).f32(0)).collect())
    }

    fn trees(&mut self, dart: bool) -> Result<RawTrees, LoadError> {
        let parameters = self.block(GBTREE, "the tree booster's parameters")?;
        let num_trees = parameters.count(0, "num_trees")?;
        let mut trees = Vec::new();
        for index in 0..num_trees {
            trees.push(self.tree(index)?);
        }
        let tree_info = self.take(num_trees.saturating_mul(4), "tree_info")?;
        Ok(RawTrees {
            trees,
            tree_info: tree_info.chunks_exact(4).map(|bytes| Block(bytes).i32(0).into()).collect(),
            num_parallel_tree: parameters.count(4, "num_parallel_tree")?.max(1),
            iteration_indptr: None,
            weight_drop: if dart { Some(self.floats("weight_drop")?) } else { None },
        })
    }

    fn tree(&mut self, index: usize) -> Result<RawTree, LoadError> {
        let parameters = self.block(TREE, "a tree's parameters")?;
        let roots = parameters.i32(0);
        if roots != 1 {
            let fault = TreeFault::Field { field: "num_roots", wanted: "1", found: roots.to_string() };
            return Err(fault.in_tree(index));
        }
        let leaf_vector = parameters.count(20, "size_leaf_vector")?;
        if leaf_vector > 1 {
            let name = format!("{leaf_vector} values in a leaf");
            return Err(LoadError::Unsupported { what: "a binary model with", name });
        }
        let count = parameters.count(4, "num_nodes")?;
        let nodes = self.take(count.saturating_mul(NODE), "a tree's nodes")?;
        let statistics = self.take(count.saturating_mul(STATISTICS), "a tree's statistics")?;
        let sum_hessian = statistics.chunks_exact(STATISTICS).map(|node| Block(node).f32(4)).collect();
        let mut tree = RawTree { sum_hessian, leaf_vector, ..RawTree::default() };
        for node in nodes.chunks_exact(NODE).map(Block) {
            let index = node.u32(12);
            tree.left.push(node.i32(4).into());
            tree.right.push(node.i32(8).into());
            tree.feature.push((index & 0x7fff_ffff).into());
            tree.default_left.push((index >> 31).into());
            tree.condition.push(node.f32(16));
        }
        Ok(tree)
    }

    fn attributes(&mut self) -> Result<ModelAttributes, LoadError> {
        let mut attributes = ModelAttributes::default();
        for _ in 0..self.count("the attributes")? {
            let key = self.text("an attribute's name")?;
            let value = self.text("an attribute's value")?;
            attributes.set(&key, value);
        }
        Ok(attributes)
    }
}

impl Block<'_> {
    fn u32(&self, at: usize) -> u32 {
        let bytes = self.0[at..at + 4].iter().rev();
        bytes.fold(0, |sum, byte| sum << 8 | u32::from(*byte))
    }

    fn i32(&self, at: usize) -> i32 {
        self.u32(at).cast_signed()
    }

    fn f32(&self, at: usize) -> f32 {
        f32::from_bits(self.u32(at))
    }

    fn count(&self, at: usize, field: &'static str) -> Result<usize, LoadError> {
        let count = self.i32(at);
        let wanted = "a number from 0";
        usize::try_from(count).map_err(|_| LoadError::Field { field, wanted, found: count.to_string() })
    }
}
