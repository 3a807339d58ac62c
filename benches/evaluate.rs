//! Tree ensembles: loading, one row and 10,000 rows, on synthetic models of typical shapes.
//!
//! `cargo bench --bench evaluate`. Splits and rows are drawn from the same range, so paths vary as much as possible.
//! `benches/serving/evaluate.py` compares with the C++ libraries on trained models.

use std::fmt::{Display, Write as _};
use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mlserver::evaluators::trees::{EnsembleOutput, FeatureMatrix, FeatureValues, TreeEnsemble};

const FEATURES: usize = 28;
const ROWS: usize = 10_000;

/// Pseudorandom numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or_default() % limit
    }

    /// Returns a number from -1 to 1, with as few distinct values as a histogram has bins.
    #[expect(clippy::cast_precision_loss, reason = "few bits are needed")]
    fn number(&mut self) -> f64 {
        self.below(250) as f64 / 125.0 - 1.0
    }
}

fn list<T: Display>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}

/// Creates a JSON model of full trees of depth 6.
fn xgboost(trees: usize) -> String {
    const SPLITS: usize = 63;
    const NODES: usize = 2 * SPLITS + 1;
    let mut random = Random(7);
    let child = |node: usize, side: usize| if node < SPLITS { (2 * node + side).to_string() } else { "-1".to_owned() };
    let tree = |_| {
        let left = list((0..NODES).map(|node| child(node, 1)), ",");
        let right = list((0..NODES).map(|node| child(node, 2)), ",");
        let features = list((0..NODES).map(|_| random.below(FEATURES)), ",");
        let conditions = list((0..NODES).map(|_| random.number()), ",");
        let default_left = list((0..NODES).map(|_| random.below(2)), ",");
        format!(
            r#"{{"left_children":[{left}],"right_children":[{right}],"split_indices":[{features}],"split_conditions":[{conditions}],"default_left":[{default_left}]}}"#
        )
    };
    let all = list((0..trees).map(tree), ",");
    let info = list(vec![0; trees], ",");
    format!(
        r#"{{"version":[3,2,0],"learner":{{"learner_model_param":{{"base_score":"[5E-1]","num_class":"0","num_feature":"{FEATURES}","num_target":"1"}},"objective":{{"name":"binary:logistic"}},"gradient_booster":{{"name":"gbtree","model":{{"gbtree_model_param":{{"num_parallel_tree":"1"}},"tree_info":[{info}],"trees":[{all}]}}}}}}}}"#
    )
}

/// Creates a text model of trees with 31 leaves, each grown at random leaves.
fn lightgbm(trees: usize) -> String {
    const SPLITS: usize = 30;
    let mut random = Random(11);
    let names = list((0..FEATURES).map(|feature| format!("f{feature}")), " ");
    let mut text = format!(
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx={}\nobjective=binary sigmoid:1\nfeature_names={names}\n\n",
        FEATURES - 1
    );
    for index in 0..trees {
        let mut children = vec![["~".to_owned(), "~".to_owned()]];
        let mut open = vec![(0, 0), (0, 1)];
        while children.len() < SPLITS {
            let (parent, side) = open.swap_remove(random.below(open.len()));
            children[parent][side] = children.len().to_string();
            open.extend([(children.len(), 0), (children.len(), 1)]);
            children.push(["~".to_owned(), "~".to_owned()]);
        }
        let mut leaves = (1..).map(|leaf: i32| (-leaf).to_string());
        for child in children.iter_mut().flatten().filter(|child| *child == "~") {
            *child = leaves.next().unwrap_or_default();
        }
        let [left, right] = [0, 1].map(|side| list(children.iter().map(|children| children[side].clone()), " "));
        let features = list((0..SPLITS).map(|_| random.below(FEATURES)), " ");
        let thresholds = list((0..SPLITS).map(|_| random.number()), " ");
        let values = list((0..=SPLITS).map(|_| random.number()), " ");
        let decisions = list(vec![10; SPLITS], " ");
        let leaves = SPLITS + 1;
        _ = write!(
            text,
            "Tree={index}\nnum_leaves={leaves}\nnum_cat=0\nsplit_feature={features}\nthreshold={thresholds}\n\
             decision_type={decisions}\nleft_child={left}\nright_child={right}\nleaf_value={values}\n\n"
        );
    }
    text + "end of trees\n"
}

fn evaluate(criterion: &mut Criterion) {
    let mut random = Random(13);
    let doubles: Vec<f64> = (0..ROWS * FEATURES).map(|_| random.number()).collect();
    #[expect(clippy::cast_possible_truncation, reason = "the numbers are synthetic")]
    let singles: Vec<f32> = doubles.iter().map(|number| *number as f32).collect();
    for trees in [100, 500] {
        let (json, text) = (xgboost(trees), lightgbm(trees));
        let load_xgboost = || TreeEnsemble::load_xgboost(json.as_bytes()).expect("the model is well formed");
        let load_lightgbm = || TreeEnsemble::load_lightgbm(text.as_bytes()).expect("the model is well formed");
        let loaders: [(_, _, &dyn Fn() -> TreeEnsemble); 2] = [
            ("xgboost", FeatureValues::F32(&singles), &load_xgboost),
            ("lightgbm", FeatureValues::F64(&doubles), &load_lightgbm),
        ];
        for (library, values, load) in loaders {
            let mut group = criterion.benchmark_group(format!("{library}, {trees} trees"));
            group.sample_size(20);
            group.bench_function("load", |bencher| bencher.iter_batched(|| (), |()| load(), BatchSize::LargeInput));
            let model = load();
            for rows in [1, ROWS] {
                let matrix = FeatureMatrix::new(first(values, rows), rows, FEATURES).expect("there are enough rows");
                group.throughput(Throughput::Elements(rows as u64));
                group.bench_function(format!("{rows} rows"), |bencher| {
                    bencher.iter(|| model.predict(black_box(matrix), EnsembleOutput::Predict));
                });
            }
            group.finish();
        }
    }
}

fn first(values: FeatureValues<'_>, rows: usize) -> FeatureValues<'_> {
    match values {
        FeatureValues::F32(values) => FeatureValues::F32(&values[..rows * FEATURES]),
        FeatureValues::F64(values) => FeatureValues::F64(&values[..rows * FEATURES]),
    }
}

criterion_group!(benches, evaluate);
criterion_main!(benches);
