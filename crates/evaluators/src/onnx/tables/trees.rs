//! Tree ensembles.

use std::fmt::Debug;
use std::marker::PhantomData;

use super::Constructor;
use super::elementwise::values;
use super::features::single;
use super::layout::to_usize;
use super::number::{Number, numeric};
use super::scores::{ClassLabels, PostTransform, SecondScore, two_scores};
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{ElementType, Shape, Tensor};
use crate::trees::onnx::{Aggregate, BranchMode, CompiledEnsemble, Ensemble, EnsembleNode, NodeColumns, WeightColumns};
use crate::trees::scalar::Scalar;

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("TreeEnsembleRegressor", |node| match node.input(0)? {
        ElementType::F64 => regressor::<f64, f64>(node),
        ElementType::F32 => regressor::<f32, f32>(node),
        ElementType::I32 => regressor::<f32, i32>(node),
        ElementType::I64 => regressor::<f32, i64>(node),
        other => Err(NodeSpec::type_fault(other)),
    }),
    ("TreeEnsembleClassifier", |node| match node.input(0)? {
        ElementType::F64 => classifier::<f64, f64>(node),
        ElementType::F32 => classifier::<f32, f32>(node),
        ElementType::I32 => classifier::<f32, i32>(node),
        ElementType::I64 => classifier::<f32, i64>(node),
        other => Err(NodeSpec::type_fault(other)),
    }),
    ("TreeEnsemble", |node| match node.input(0)? {
        ElementType::F64 => ensemble::<f64>(node),
        ElementType::F32 => ensemble::<f32>(node),
        other => Err(NodeSpec::type_fault(other)),
    }),
];

/// The type in which trees are evaluated.
trait TreeNumber: Scalar + Number {}

impl<T: Scalar + Number> TreeNumber for T {}

/// Returns a number in double precision.
fn double<T: Scalar>(value: T) -> f64 {
    value.into()
}

/// Returns a list of numbers, which a node has in single precision, or as a tensor whose name ends with `_as_tensor`.
fn numbers<T: TreeNumber>(node: &NodeSpec<'_, '_>, name: &str) -> Result<Vec<T>, NodeFault> {
    if let Some(tensor) = node.tensor(&format!("{name}_as_tensor"))? {
        return of_tensor(&tensor);
    }
    Ok(node.floats(name)?.iter().map(|value| <T as Scalar>::from_f32(*value)).collect())
}

/// Returns the numbers of a tensor.
fn of_tensor<T: TreeNumber>(tensor: &Tensor<'_>) -> Result<Vec<T>, NodeFault> {
    numeric!(tensor.element_type(), [F32 f32, F64 f64], U => {
        let values = tensor.values::<U>().map(|values| values.iter().map(|value| T::of_f64(value.to_f64())).collect());
        values.ok_or(NodeFault::Constants(Fault::Inconsistent("a tensor has another type")))
    })
}

/// Returns the branch mode with a name; `None` for a leaf.
fn mode(name: &[u8]) -> Result<Option<BranchMode>, NodeFault> {
    Ok(Some(match name {
        b"LEAF" => return Ok(None),
        b"BRANCH_LEQ" => BranchMode::AtMost,
        b"BRANCH_LT" => BranchMode::Below,
        b"BRANCH_GTE" => BranchMode::AtLeast,
        b"BRANCH_GT" => BranchMode::Above,
        b"BRANCH_EQ" => BranchMode::Equal,
        b"BRANCH_NEQ" => BranchMode::NotEqual,
        other => {
            let name = String::from_utf8_lossy(&other[..other.len().min(40)]).escape_debug().to_string();
            return Err(NodeFault::Unsupported(format!("the node mode `{name}`")));
        }
    }))
}

/// Reads trees whose nodes and weights are columns.
fn columns<T: TreeNumber>(
    node: &NodeSpec<'_, '_>,
    prefix: &str,
    ids: &str,
    targets: usize,
    aggregate: Aggregate,
) -> Result<CompiledEnsemble<T>, NodeFault> {
    // How often training rows passed a node.
    node.ignore("nodes_hitrates");
    node.ignore("nodes_hitrates_as_tensor");
    let modes = node.texts("nodes_modes")?.iter().map(|name| mode(name)).collect::<Result<Vec<_>, _>>()?;
    let nodes = NodeColumns {
        tree_ids: node.ints("nodes_treeids")?,
        node_ids: node.ints("nodes_nodeids")?,
        features: node.ints("nodes_featureids")?,
        modes: &modes,
        thresholds: &numbers::<T>(node, "nodes_values")?,
        holds: node.ints("nodes_truenodeids")?,
        fails: node.ints("nodes_falsenodeids")?,
        missing: node.ints("nodes_missing_value_tracks_true")?,
    };
    let weights = WeightColumns {
        tree_ids: node.ints(&format!("{prefix}_treeids"))?,
        node_ids: node.ints(&format!("{prefix}_nodeids"))?,
        targets: node.ints(&format!("{prefix}_{ids}"))?,
        weights: &numbers::<T>(node, &format!("{prefix}_weights"))?,
    };
    Ok(CompiledEnsemble::new(Ensemble::of_columns(&nodes, &weights, targets, aggregate)?)?)
}

/// The most targets of an ensemble: they need memory for each row.
const MAX_TARGETS: usize = 1 << 20;

/// Reads the number of targets, of which each should have a weight.
fn targets(node: &NodeSpec<'_, '_>) -> Result<usize, NodeFault> {
    let targets = to_usize(node.int("n_targets")?.unwrap_or(1))?;
    if targets == 0 || targets > MAX_TARGETS {
        return Err(NodeFault::Unsupported(format!("`n_targets` = {targets}")));
    }
    Ok(targets)
}

/// Returns the rows and columns of features.
fn rows_of(shape: &Shape, needed: usize) -> Result<(usize, usize), Fault> {
    let (rows, columns) = match shape.dimensions() {
        [columns] => (1, *columns),
        [rows, columns] => (*rows, *columns),
        _ => return Err(Fault::Shape { found: *shape, wanted: "rows of features".to_owned() }),
    };
    if columns < needed {
        return Err(Fault::Shape { found: *shape, wanted: format!("at least {needed} features") });
    }
    Ok((rows, columns))
}

/// Sums of trees, for regression.
#[derive(Debug)]
struct Regressor<T, S> {
    trees: CompiledEnsemble<T>,
    /// One for each target, or none.
    base: Vec<T>,
    transform: PostTransform,
    element: PhantomData<fn() -> S>,
}

fn aggregate(node: &NodeSpec<'_, '_>) -> Result<Aggregate, NodeFault> {
    let choices =
        [("SUM", Aggregate::Sum), ("AVERAGE", Aggregate::Average), ("MIN", Aggregate::Min), ("MAX", Aggregate::Max)];
    node.choice("aggregate_function", &choices, Aggregate::Sum)
}

fn regressor<T: TreeNumber, S: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let targets = targets(node)?;
    let trees = columns::<T>(node, "target", "ids", targets, aggregate(node)?)?;
    let base = numbers::<T>(node, "base_values")?;
    check_base(&base, targets)?;
    let transform = PostTransform::of(node)?;
    if !base.is_empty() && (0..targets).any(|target| trees.is_scored(target) != Some(true)) {
        return Err(NodeFault::Unsupported("base values of targets without a weight in some rows".to_owned()));
    }
    let regressor = Regressor::<T, S> { trees, base, transform, element: PhantomData };
    Ok(Built::one(regressor, ElementType::F32))
}

fn check_base<T>(base: &[T], targets: usize) -> Result<(), NodeFault> {
    if base.is_empty() || base.len() == targets {
        return Ok(());
    }
    Err(NodeFault::Count { what: "base values", found: base.len(), wanted: targets })
}

impl<T: TreeNumber, S: Number> Regressor<T, S> {
    /// Returns the sums of each row, with the base values.
    fn sums(&self, elements: &[S], rows: usize, columns: usize, run: &Run<'_>) -> Result<Vec<T>, Fault> {
        let targets = self.trees.targets();
        let mut sums = run.scratch(rows, targets, T::default())?;
        self.trees.aggregate(elements, columns, |value| T::of_f64(value.to_f64()), run.stop(), &mut sums);
        run.check()?;
        if !self.base.is_empty() {
            for sums in sums.chunks_mut(targets) {
                for (sum, base) in sums.iter_mut().zip(&self.base) {
                    *sum += *base;
                }
            }
        }
        Ok(sums)
    }
}

impl<T: TreeNumber, S: Number> Operator for Regressor<T, S> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let (rows, _) = rows_of(&required(inputs, 0)?.shape, self.trees.features())?;
        Ok(vec![Some(Shape::of_matrix(rows, self.trees.targets()).ok_or(Fault::ShapeOverflow)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<S>(inputs, 0)?;
        let (rows, columns) = rows_of(shape, self.trees.features())?;
        let result = Shape::of_matrix(rows, self.trees.targets()).ok_or(Fault::ShapeOverflow)?;
        let sums = self.sums(elements, rows, columns, run)?;
        let mut scores = run.list::<f32>(&result)?;
        scores.extend(sums.into_iter().map(|sum| single(double(sum))));
        // One score has nothing to be compared with.
        if self.trees.targets() > 1 {
            self.transform.apply(&mut scores, self.trees.targets());
        }
        Ok(vec![finish(result, scores)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        tree_cost(&self.trees, inputs)
    }
}

/// Estimates how long trees take.
fn tree_cost<T: Scalar>(trees: &CompiledEnsemble<T>, inputs: &[Option<Shape>]) -> u64 {
    let shape = inputs.first().copied().flatten().unwrap_or_default();
    let rows = rows_of(&shape, 0).map_or(1, |(rows, _)| rows);
    u64::try_from(trees.cost(rows)).unwrap_or(u64::MAX)
}

/// Classes by the sums of trees.
#[derive(Debug)]
struct Classifier<T, S> {
    /// The sums. Base values of one or two classes are not part of them.
    regressor: Regressor<T, S>,
    labels: ClassLabels,
    classes: usize,
    rule: Rule<T>,
}

/// How a row's class follows from its sums.
#[derive(Debug)]
enum Rule<T> {
    /// The largest sum, of those that the trees or base values give.
    Largest { scored: Vec<bool> },
    /// One or two classes.
    Few(FewClasses<T>),
}

/// How one or two classes are told apart, as onnxruntime does it.
#[derive(Debug)]
struct FewClasses<T> {
    scores: FewScores,
    base: Vec<T>,
    /// The least score of the second class is above this.
    limit: T,
    /// How the first class gets a score of the only one.
    second: SecondScore,
}

/// Which of the classes have a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FewScores {
    /// The only class.
    Only,
    /// The trees score the first of two classes: it decides, and a second score is made of it.
    First,
    /// The same, with base values for both: the second class has 0.
    FirstAndZero,
    /// The trees score the second of two classes; the first one has 0.
    Second,
    Both,
    /// The same, with base values for both: the score of the first class decides, and its opposite is the other.
    Mirrored,
}

fn classifier<T: TreeNumber, S: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let mut labels = ClassLabels::of(node, "classlabels_int64s", "classlabels_strings")?;
    let classes = labels.len();
    let trees = columns::<T>(node, "class", "ids", classes, Aggregate::Sum)?;
    let weights = numbers::<T>(node, "class_weights")?;
    let mut base = numbers::<T>(node, "base_values")?;
    let transform = PostTransform::of(node)?;
    let rule = if classes > 2 {
        check_base(&base, classes)?;
        let scored = (0..classes).map(|class| trees.is_scored(class).or_else(|| (!base.is_empty()).then_some(true)));
        let scored: Option<Vec<bool>> = scored.collect();
        let partly = || NodeFault::Unsupported("a class that only some leaves score".to_owned());
        let scored = scored.ok_or_else(partly)?;
        Rule::Largest { scored: scored.into_iter().map(|scored| scored || !base.is_empty()).collect() }
    } else {
        let rule = few_classes(&trees, classes, &weights, std::mem::take(&mut base))?;
        // onnxruntime has other labels if all classes are scored, unless they are texts.
        if matches!(rule.scores, FewScores::Only | FewScores::Both | FewScores::Mirrored) {
            labels = match labels.places() {
                None if classes == 1 => {
                    return Err(NodeFault::Unsupported("a text as the only class".to_owned()));
                }
                places => places.unwrap_or(labels),
            };
        }
        Rule::Few(rule)
    };
    let outputs = vec![labels.element_type(), ElementType::F32];
    let regressor = Regressor::<T, S> { trees, base, transform, element: PhantomData };
    Ok(Built { operator: Box::new(Classifier { regressor, labels, classes, rule }), outputs })
}

/// Returns how one or two classes are told apart.
fn few_classes<T: TreeNumber>(
    trees: &CompiledEnsemble<T>,
    classes: usize,
    weights: &[T],
    base: Vec<T>,
) -> Result<FewClasses<T>, NodeFault> {
    if base.len() > classes {
        return Err(NodeFault::Count { what: "base values", found: base.len(), wanted: classes });
    }
    let weighted: Option<Vec<bool>> = (0..classes).map(|class| trees.is_scored(class)).collect();
    let partly = || NodeFault::Unsupported("a class that only some leaves score".to_owned());
    let scores = match (&weighted.ok_or_else(partly)?[..], base.len()) {
        ([true], _) => FewScores::Only,
        ([true, false], 2) => FewScores::FirstAndZero,
        ([true, false], _) => FewScores::First,
        ([false, true], _) => FewScores::Second,
        ([true, true], 2) => FewScores::Mirrored,
        ([true, true], _) => FewScores::Both,
        _ => return Err(NodeFault::Unsupported("trees without weights".to_owned())),
    };
    let is_positive = weights.iter().all(|weight| *weight >= T::default());
    let is_one_scored = matches!(scores, FewScores::First | FewScores::FirstAndZero | FewScores::Second);
    Ok(FewClasses {
        scores,
        base,
        limit: if is_one_scored && is_positive { T::of_f64(0.5) } else { T::default() },
        second: if is_positive { SecondScore::Complement } else { SecondScore::Opposite },
    })
}

impl<T: TreeNumber> FewClasses<T> {
    /// Adds the scores of a row, and returns the position of its label.
    fn add(&self, sums: &[T], transform: PostTransform, scores: &mut Vec<f32>) -> usize {
        let first = sums.first().copied().unwrap_or_default();
        let second = sums.get(1).copied().unwrap_or_default();
        let base = |class: usize| self.base.get(class).copied().unwrap_or_default();
        let number = |score: T| single(double(score));
        let (deciding, both) = match self.scores {
            FewScores::Only => {
                let score = first.plus(base(0));
                scores.push(number(score));
                return usize::from(score > self.limit);
            }
            FewScores::First => {
                let score = first.plus(base(0));
                scores.extend(match (self.second, transform) {
                    (second, PostTransform::Logistic) => two_scores(number(score), second, transform),
                    // Rounded once.
                    (SecondScore::Complement, _) => [single(1.0 - double(score)), number(score)],
                    (SecondScore::Opposite, _) => [-number(score), number(score)],
                });
                return usize::from(score > self.limit);
            }
            FewScores::FirstAndZero => (first.plus(base(0)), [first.plus(base(0)), T::default()]),
            FewScores::Second => {
                let score = if self.base.len() == 2 { base(1) } else { second };
                (score, [T::default(), score])
            }
            FewScores::Both => (second, [first.plus(base(0)), second]),
            FewScores::Mirrored => {
                let score = base(1).plus(first);
                (score, [score.negated(), score])
            }
        };
        let mut both = both.map(number);
        transform.apply(&mut both, 2);
        scores.extend(both);
        usize::from(deciding > self.limit)
    }
}

impl<T: TreeNumber, S: Number> Operator for Classifier<T, S> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let (rows, _) = rows_of(&required(inputs, 0)?.shape, self.regressor.trees.features())?;
        Ok(vec![Shape::of_list(rows), Some(Shape::of_matrix(rows, self.classes).ok_or(Fault::ShapeOverflow)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<S>(inputs, 0)?;
        let (rows, columns) = rows_of(shape, self.regressor.trees.features())?;
        let result = Shape::of_matrix(rows, self.classes).ok_or(Fault::ShapeOverflow)?;
        let sums = self.regressor.sums(elements, rows, columns, run)?;
        let transform = self.regressor.transform;
        let mut scores = run.list::<f32>(&result)?;
        let mut positions = Vec::with_capacity(rows);
        for sums in sums.chunks(self.classes) {
            positions.push(match &self.rule {
                Rule::Few(rule) => rule.add(sums, transform, &mut scores),
                Rule::Largest { scored } => {
                    scores.extend(sums.iter().map(|sum| single(double(*sum))));
                    largest_of(sums, scored)
                }
            });
        }
        if matches!(self.rule, Rule::Largest { .. }) {
            transform.apply(&mut scores, self.classes);
        }
        Ok(vec![self.labels.pick(&positions, run)?, finish(result, scores)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        tree_cost(&self.regressor.trees, inputs)
    }
}

/// Returns the position of the largest sum, the first of equal ones, of those that are scored.
fn largest_of<T: PartialOrd>(sums: &[T], scored: &[bool]) -> usize {
    let mut best: Option<usize> = None;
    for (place, (sum, _)) in sums.iter().zip(scored).enumerate().filter(|(_, (_, scored))| **scored) {
        if best.is_none_or(|best| *sum > sums[best]) {
            best = Some(place);
        }
    }
    best.unwrap_or_default()
}

/// The modes of nodes, by their numbers in the newer operator.
const MODES: [BranchMode; 7] = [
    BranchMode::AtMost,
    BranchMode::Below,
    BranchMode::AtLeast,
    BranchMode::Above,
    BranchMode::Equal,
    BranchMode::NotEqual,
    BranchMode::Member,
];

/// Sums of trees that keep the type of the input.
#[derive(Debug)]
struct TypedEnsemble<T> {
    regressor: Regressor<T, T>,
}

fn ensemble<T: TreeNumber>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    node.ignore("nodes_hitrates");
    let targets = targets(node)?;
    let aggregates = [Aggregate::Average, Aggregate::Sum, Aggregate::Min, Aggregate::Max];
    // In the order of onnxruntime; the standard's text has the softmax second.
    let transforms = [PostTransform::None, PostTransform::Logistic, PostTransform::Softmax, PostTransform::SoftmaxZero];
    let number = |name: &str, default: i64, limit: usize| {
        let found = node.int(name)?.unwrap_or(default);
        let place = usize::try_from(found).ok().filter(|place| *place < limit);
        place.ok_or_else(|| NodeFault::Unsupported(format!("`{name}` = {found}")))
    };
    let aggregate = aggregates[number("aggregate_function", 1, aggregates.len())?];
    let transform = transforms[number("post_transform", 0, transforms.len())?];
    if transform != PostTransform::None && T::TYPE == ElementType::F64 {
        return Err(NodeFault::Unsupported("`post_transform` in double precision".to_owned()));
    }
    let trees = CompiledEnsemble::new(Pieces::<T>::read(node)?.ensemble(targets, aggregate)?)?;
    let regressor = Regressor { trees, base: Vec::new(), transform, element: PhantomData };
    Ok(Built::one(TypedEnsemble { regressor }, T::TYPE))
}

/// The attributes of the newer operator.
struct Pieces<'n, T> {
    roots: &'n [i64],
    features: &'n [i64],
    modes: Vec<BranchMode>,
    splits: Vec<T>,
    holds: &'n [i64],
    fails: &'n [i64],
    hold_leaves: &'n [i64],
    fail_leaves: &'n [i64],
    missing: &'n [i64],
    leaf_targets: &'n [i64],
    leaf_weights: Vec<T>,
    members: Vec<T>,
}

impl<'n, T: TreeNumber> Pieces<'n, T> {
    fn read(node: &NodeSpec<'n, '_>) -> Result<Self, NodeFault> {
        let tensor = |name: &str| match node.tensor(name)? {
            Some(tensor) => of_tensor::<T>(&tensor),
            None => Ok(Vec::new()),
        };
        let modes = node.tensor("nodes_modes")?;
        let modes =
            modes.as_ref().and_then(|modes| modes.values::<u8>()).map(|modes| modes.to_vec()).unwrap_or_default();
        let of_number = |number: &u8| MODES.get(usize::from(*number)).copied();
        let modes: Option<Vec<BranchMode>> = modes.iter().map(of_number).collect();
        let pieces = Self {
            roots: node.ints("tree_roots")?,
            features: node.ints("nodes_featureids")?,
            modes: modes.ok_or_else(|| NodeFault::Unsupported("a node mode above 6".to_owned()))?,
            splits: tensor("nodes_splits")?,
            holds: node.ints("nodes_truenodeids")?,
            fails: node.ints("nodes_falsenodeids")?,
            hold_leaves: node.ints("nodes_trueleafs")?,
            fail_leaves: node.ints("nodes_falseleafs")?,
            missing: node.ints("nodes_missing_value_tracks_true")?,
            leaf_targets: node.ints("leaf_targetids")?,
            leaf_weights: tensor("leaf_weights")?,
            members: tensor("membership_values")?,
        };
        let nodes = pieces.features.len();
        let lengths = [
            pieces.modes.len(),
            pieces.splits.len(),
            pieces.holds.len(),
            pieces.fails.len(),
            pieces.hold_leaves.len(),
            pieces.fail_leaves.len(),
        ];
        let optional = [pieces.missing.len()];
        let wrong = lengths.into_iter().find(|found| *found != nodes);
        let wrong = wrong.or_else(|| optional.into_iter().find(|found| *found != 0 && *found != nodes));
        if let Some(found) = wrong {
            return Err(NodeFault::Count { what: "values for its nodes", found, wanted: nodes });
        }
        let (found, wanted) = (pieces.leaf_weights.len(), pieces.leaf_targets.len());
        if found == wanted { Ok(pieces) } else { Err(NodeFault::Count { what: "weights", found, wanted }) }
    }

    /// Returns the sets of members of all nodes that have one, in the order of the nodes: they are separated by NaN.
    fn member_sets(&self) -> Vec<std::ops::Range<usize>> {
        let mut sets = Vec::new();
        let mut start = 0;
        for (place, value) in self.members.iter().enumerate() {
            if Number::is_nan(*value) {
                sets.push(start..place);
                start = place + 1;
            }
        }
        sets.push(start..self.members.len());
        sets
    }

    fn ensemble(self, targets: usize, aggregate: Aggregate) -> Result<Ensemble<T>, NodeFault> {
        let mut sets = self.member_sets().into_iter();
        let mut members = vec![0..0; self.modes.len()];
        for (mode, slot) in self.modes.iter().zip(&mut members) {
            if *mode == BranchMode::Member {
                let missing = || NodeFault::Damaged("a node has no members".to_owned());
                *slot = sets.next().ok_or_else(missing)?;
            }
        }
        let weights = self.leaf_targets.iter().zip(&self.leaf_weights).map(|(target, weight)| {
            let wrong = |_| NodeFault::Damaged(format!("a leaf has the target {target}"));
            Ok((usize::try_from(*target).map_err(wrong)?, *weight))
        });
        let weights = weights.collect::<Result<Vec<_>, NodeFault>>()?;
        let mut seen = vec![false; self.features.len()];
        let mut trees = Vec::with_capacity(self.roots.len());
        for root in self.roots {
            trees.push(self.tree(*root, &members, &mut seen)?);
        }
        Ok(Ensemble { trees, weights, members: self.members, targets, aggregate })
    }

    /// Collects the nodes of a tree. Leaves become nodes of their own.
    fn tree(
        &self,
        root: i64,
        members: &[std::ops::Range<usize>],
        seen: &mut [bool],
    ) -> Result<Vec<EnsembleNode<T>>, NodeFault> {
        let wrong = |what: &str, found: i64| NodeFault::Damaged(format!("it has no {what} {found}"));
        let mut nodes = Vec::new();
        let mut pending = vec![(root, false, None::<(usize, usize)>)];
        while let Some((id, is_leaf, parent)) = pending.pop() {
            let place = nodes.len();
            if let Some((parent, side)) = parent
                && let Some(EnsembleNode::Split { children, .. }) = nodes.get_mut(parent)
            {
                children[side] = place;
            }
            let at = to_usize(id).map_err(|_| wrong("node", id))?;
            if is_leaf {
                if at >= self.leaf_targets.len() {
                    return Err(wrong("leaf", id));
                }
                nodes.push(EnsembleNode::Leaf(at..at + 1));
                continue;
            }
            let is_seen = seen.get_mut(at).ok_or_else(|| wrong("node", id))?;
            if std::mem::replace(is_seen, true) {
                return Err(NodeFault::Damaged(format!("node {at} has two parents")));
            }
            nodes.push(EnsembleNode::Split {
                feature: self.features[at],
                mode: self.modes[at],
                threshold: if self.modes[at] == BranchMode::Member { T::default() } else { self.splits[at] },
                members: members[at].clone(),
                children: [0, 0],
                missing: self.missing.get(at).is_some_and(|missing| *missing == 1),
            });
            pending.push((self.fails[at], self.fail_leaves[at] == 1, Some((place, 1))));
            pending.push((self.holds[at], self.hold_leaves[at] == 1, Some((place, 0))));
        }
        Ok(nodes)
    }
}

impl<T: TreeNumber> Operator for TypedEnsemble<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        self.regressor.shapes(inputs)
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let trees = &self.regressor.trees;
        let (rows, columns) = rows_of(shape, trees.features())?;
        let targets = trees.targets();
        let result = Shape::of_matrix(rows, targets).ok_or(Fault::ShapeOverflow)?;
        let mut sums = self.regressor.sums(elements, rows, columns, run)?;
        if self.regressor.transform != PostTransform::None {
            let mut scores: Vec<f32> = Vec::with_capacity(targets);
            for sums in sums.chunks_mut(targets) {
                scores.clear();
                scores.extend(sums.iter().map(|sum| single(double(*sum))));
                if targets > 1 {
                    self.regressor.transform.apply(&mut scores, targets);
                }
                for (sum, score) in sums.iter_mut().zip(&scores) {
                    *sum = <T as Scalar>::from_f32(*score);
                }
            }
        }
        run.claim(result.count(), T::TYPE.width())?;
        Ok(vec![finish(result, sums)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        tree_cost(&self.regressor.trees, inputs)
    }
}
