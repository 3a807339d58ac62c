"""Cases of tree ensembles: random trees with every mode of nodes, and rows at their thresholds."""

import numpy as np
from casefile import one_node, rng_for
from onnx import numpy_helper

# `PROBIT` is not evaluated natively.
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]
TOLERANCES = {"NONE": 0.0, "SOFTMAX": 1e-6, "LOGISTIC": 1e-6, "SOFTMAX_ZERO": 1e-6}
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
FEATURES = 4
GRID = np.array([-1.5, -0.5, 0.0, 0.1, 0.25, 0.7, 1.0, 2.0, 3.0])


def random_trees(rng, trees, depth, modes):
    """Returns the columns of nodes, and the leaves as pairs of tree and node."""
    columns = {key: [] for key in ["tree", "node", "feature", "mode", "value", "true", "false", "missing"]}
    leaves = []
    for tree in range(trees):
        count = 0

        def grow(level, tree=tree):
            nonlocal count
            node, count = count, count + 1
            is_leaf = level == depth or (level > 0 and rng.rand() < 0.2)
            row = len(columns["tree"])
            values = {
                "tree": tree,
                "node": node,
                "feature": 0 if is_leaf else int(rng.randint(FEATURES)),
                "mode": "LEAF" if is_leaf else modes[rng.randint(len(modes))],
                "value": 0.0 if is_leaf else float(GRID[rng.randint(len(GRID))]),
                "true": 0,
                "false": 0,
                "missing": 0 if is_leaf else int(rng.randint(2)),
            }
            for key, value in values.items():
                columns[key].append(value)
            if is_leaf:
                leaves.append((tree, node))
                return node
            columns["true"][row] = grow(level + 1)
            columns["false"][row] = grow(level + 1)
            return node

        grow(0)
    return columns, leaves


def rows(rng, dtype):
    """Returns rows at thresholds, next to them, missing and infinite."""
    grid = GRID.astype(dtype)
    values = np.concatenate(
        [
            grid,
            np.nextafter(grid, dtype(-np.inf)),
            np.nextafter(grid, dtype(np.inf)),
            np.array([np.nan, np.nan, np.inf, -np.inf, 0.1, -0.0, 1e30, 1, 2, 3, 17, 31, 32, 33], dtype),
        ]
    ).astype(dtype)
    return values[rng.randint(len(values), size=(40, FEATURES))]


def node_attributes(columns, double, name="nodes_values"):
    """Returns the attributes of the nodes."""
    values = {
        "nodes_treeids": columns["tree"],
        "nodes_nodeids": columns["node"],
        "nodes_featureids": columns["feature"],
        "nodes_modes": columns["mode"],
        "nodes_truenodeids": columns["true"],
        "nodes_falsenodeids": columns["false"],
        "nodes_missing_value_tracks_true": columns["missing"],
    }
    values.update(floats(name, columns["value"], double))
    return values


def floats(name, values, double):
    """Returns an attribute of numbers, a tensor if they are in double precision."""
    if double:
        return {f"{name}_as_tensor": numpy_helper.from_array(np.array(values, np.float64), name)}
    return {name: [float(value) for value in values]}


def weight_attributes(rng, leaves, prefix, targets, double, low=-1.0, only=None):
    """Returns the attributes of weights: one for each leaf and target, or for one target of each tree."""
    entries = []
    for tree, node in leaves:
        ids = range(targets) if only is None else [only(tree)]
        entries += [(tree, node, target, rng.uniform(low, 1.0)) for target in ids]
    values = {
        f"{prefix}_treeids": [each[0] for each in entries],
        f"{prefix}_nodeids": [each[1] for each in entries],
        f"{prefix}_ids": [each[2] for each in entries],
    }
    values.update(floats(f"{prefix}_weights", [each[3] for each in entries], double))
    return values


def regressors(cases):
    """Adds regressors: modes, types, aggregates, base values and transformations."""

    def add(name, dtype=np.float32, modes=MODES[:1], targets=1, trees=9, only=None, base=None, low=-1.0, **more):
        name = f"TreeEnsembleRegressor-{name}"
        rng = rng_for(name)
        double = dtype == np.float64
        columns, leaves = random_trees(rng, trees, 4, modes)
        attributes = node_attributes(columns, double)
        attributes.update(weight_attributes(rng, leaves, "target", targets, double, low, only))
        if base is not None:
            attributes.update(floats("base_values", base, double))
        x = rows(rng, dtype)
        model = one_node("TreeEnsembleRegressor", [x], n_targets=targets, **attributes, **more)
        cases.add(name, model, [x], TOLERANCES[more.get("post_transform", "NONE")])

    for mode in MODES:
        add(mode, modes=[mode])
        add(f"{mode}-fp64", modes=[mode], dtype=np.float64)
    add("all-modes", modes=MODES)
    add("all-modes-fp64", modes=MODES, dtype=np.float64, targets=3)
    for aggregate in ["SUM", "AVERAGE", "MIN", "MAX"]:
        for dtype in (np.float32, np.float64):
            kind = f"{aggregate}-{np.dtype(dtype).name}"
            add(kind, dtype=dtype, aggregate_function=aggregate)
            add(f"{kind}-base", dtype=dtype, aggregate_function=aggregate, base=[0.3])
            add(f"{kind}-3", dtype=dtype, aggregate_function=aggregate, targets=3, base=[0.1, 0.2, -0.3])
            add(f"{kind}-only", dtype=dtype, aggregate_function=aggregate, targets=3, only=lambda tree: tree % 3)
            add(f"{kind}-gap", dtype=dtype, aggregate_function=aggregate, targets=3, only=lambda tree: tree % 2)
        add(f"{aggregate}-one-tree", aggregate_function=aggregate, trees=1, base=[0.5])
        add(f"{aggregate}-one-tree-3", aggregate_function=aggregate, trees=1, targets=3)
    for transform in TRANSFORMS:
        for targets in (1, 2, 3):
            add(f"{transform}-{targets}", targets=targets, post_transform=transform, low=0.0, trees=1)
            add(f"{transform}-{targets}-9", targets=targets, post_transform=transform, base=[0.2] * targets)
    add("many-trees", trees=120, targets=2, base=[1.5, -2.5])
    add("many-trees-fp64", trees=120, dtype=np.float64)


def classifiers(cases):
    """Adds classifiers: labels, the binary rules, and transformations."""

    def add(name, classes, dtype=np.float32, only=None, base=None, low=-1.0, texts=False, trees=5, **more):
        name = f"TreeEnsembleClassifier-{name}"
        rng = rng_for(name)
        double = dtype == np.float64
        columns, leaves = random_trees(rng, trees, 3, MODES[:2])
        attributes = node_attributes(columns, double)
        attributes.update(weight_attributes(rng, leaves, "class", classes, double, low, only))
        if base is not None:
            attributes.update(floats("base_values", base, double))
        if texts:
            attributes["classlabels_strings"] = [f"label {index}" for index in range(classes)]
        else:
            attributes["classlabels_int64s"] = [10 - 3 * index for index in range(classes)]
        x = rows(rng, np.float32 if dtype == np.int64 else dtype)
        if dtype == np.int64:
            x = np.nan_to_num(x, nan=3, posinf=9, neginf=-9).clip(-9, 9).astype(dtype)
        model = one_node("TreeEnsembleClassifier", [x], outputs=2, **attributes, **more)
        cases.add(name, model, [x], TOLERANCES[more.get("post_transform", "NONE")])

    for transform in TRANSFORMS:
        for classes in (1, 2, 3):
            for sign, low in (("positive", 0.0), ("mixed", -1.0)):
                kind = f"{transform}-{classes}-{sign}"
                add(kind, classes, low=low, post_transform=transform)
                add(f"{kind}-base", classes, low=low, post_transform=transform, base=[0.25] * classes)
        for sign, low in (("positive", 0.0), ("mixed", -1.0)):
            for scored in (0, 1):
                kind = f"{transform}-binary-{scored}-{sign}"
                add(kind, 2, low=low, post_transform=transform, only=lambda tree, at=scored: at)
                add(f"{kind}-one", 2, low=low, post_transform=transform, only=lambda tree, at=scored: at, trees=1)
                add(
                    f"{kind}-base-1", 2, low=low, post_transform=transform, only=lambda tree, at=scored: at, base=[0.25]
                )
                add(
                    f"{kind}-base-2",
                    2,
                    low=low,
                    post_transform=transform,
                    only=lambda tree, at=scored: at,
                    base=[0.25, 0.5],
                )
    add("texts", 3, texts=True)
    add("texts-binary", 2, texts=True, only=lambda tree: 0)
    add("fp64", 3, dtype=np.float64, base=[0.1, 0.2, 0.3])
    add("fp64-binary", 2, dtype=np.float64, only=lambda tree: 0, post_transform="LOGISTIC")
    add("int64", 3, dtype=np.int64)
    add("one-class-a-tree", 3, only=lambda tree: tree % 3, trees=9, post_transform="SOFTMAX")
    add("unscored-class", 3, only=lambda tree: 2 * (tree % 2), trees=4)
    add("unscored-class-negative", 3, only=lambda tree: 0, low=-2.0, trees=4)
    add("many-trees", 4, trees=80, low=0.0)


def ensembles(cases):
    """Adds ensembles of version 5."""

    def add(name, dtype=np.float32, modes=range(7), targets=1, trees=5, transform=0, aggregate=1):
        name = f"TreeEnsemble-{name}"
        rng = rng_for(name)
        nodes = {key: [] for key in ["feature", "mode", "split", "true", "false", "true_leaf", "false_leaf", "missing"]}
        leaf_targets, leaf_weights, members, roots = [], [], [], []

        def leaf():
            leaf_targets.append(int(rng.randint(targets)))
            leaf_weights.append(rng.uniform(-1.0, 1.0))
            return len(leaf_targets) - 1

        def grow(level):
            at = len(nodes["mode"])
            mode = int(modes[rng.randint(len(modes))])
            for key, value in {
                "feature": int(rng.randint(FEATURES)),
                "mode": mode,
                "missing": int(rng.randint(2)),
            }.items():
                nodes[key].append(value)
            nodes["split"].append(float(GRID[rng.randint(len(GRID))]))
            if mode == 6:
                members.extend(
                    [*map(float, sorted(set(rng.randint(-2, 40, size=2)) | set(rng.randint(1, 4, size=2)))), np.nan]
                )
            for key in ("true", "false", "true_leaf", "false_leaf"):
                nodes[key].append(0)
            for side in ("true", "false"):
                is_leaf = level == 3 or rng.rand() < 0.3
                nodes[f"{side}_leaf"][at] = int(is_leaf)
                nodes[side][at] = leaf() if is_leaf else grow(level + 1)
            return at

        for _ in range(trees):
            roots.append(grow(0))
        attributes = {
            "n_targets": targets,
            "aggregate_function": aggregate,
            "post_transform": transform,
            "tree_roots": roots,
            "nodes_modes": numpy_helper.from_array(np.array(nodes["mode"], np.uint8), "modes"),
            "nodes_featureids": nodes["feature"],
            "nodes_splits": numpy_helper.from_array(np.array(nodes["split"], dtype), "splits"),
            "nodes_truenodeids": nodes["true"],
            "nodes_trueleafs": nodes["true_leaf"],
            "nodes_falsenodeids": nodes["false"],
            "nodes_falseleafs": nodes["false_leaf"],
            "nodes_missing_value_tracks_true": nodes["missing"],
            "leaf_targetids": leaf_targets,
            "leaf_weights": numpy_helper.from_array(np.array(leaf_weights, dtype), "weights"),
        }
        if members:
            attributes["membership_values"] = numpy_helper.from_array(np.array(members, dtype), "members")
        x = rows(rng, dtype)
        if members:
            # Of fractions, onnxruntime's answer depends on the largest member.
            x = np.round(x)
        cases.add(name, one_node("TreeEnsemble", [x], ml=5, **attributes), [x], list(TOLERANCES.values())[transform])

    for dtype in (np.float32, np.float64):
        kind = np.dtype(dtype).name
        add(f"modes-{kind}", dtype, range(6))
        add(f"members-{kind}", dtype)
        add(f"only-members-{kind}", dtype, [6])
        for aggregate in range(4):
            add(f"aggregate-{aggregate}-{kind}", dtype, [0], targets=1 + aggregate % 2, aggregate=aggregate)
        # Of numbers in double precision they are not evaluated natively.
        for transform in range(4 if dtype == np.float32 else 1):
            add(f"transform-{transform}-{kind}", dtype, [0, 1], targets=3, transform=transform)
            add(f"transform-{transform}-{kind}-1", dtype, [0, 1], targets=1, transform=transform)


def add_cases(cases):
    """Adds the cases of this file."""
    regressors(cases)
    classifiers(cases)
    ensembles(cases)
