"""Cases of linear models and support vector machines."""

import numpy as np
from casefile import one_node, rng_for
from tree_cases import TOLERANCES, TRANSFORMS


def labels(classes, texts, name="classlabels_ints"):
    """Returns the attribute of labels."""
    if texts:
        return {"classlabels_strings": [f"label {index}" for index in range(classes)]}
    return {name: [10 - 3 * index for index in range(classes)]}


def tolerance(transform):
    """Returns the tolerance of scores, which are computed in other orders."""
    return max(TOLERANCES[transform], 1e-6)


def numbers(rng, *shape, dtype=np.float32):
    """Returns random numbers."""
    x = rng.normal(size=shape) * 2
    return (np.round(x) if np.issubdtype(dtype, np.integer) else x).astype(dtype)


def linear(cases):
    """Adds linear models."""
    for transform in TRANSFORMS:
        for targets in (1, 2, 3):
            name = f"LinearRegressor-{transform}-{targets}"
            rng = rng_for(name)
            x = numbers(rng, 20, 6) / 8
            attributes = {"coefficients": list(rng.uniform(0, 0.2, 6 * targets)), "targets": targets}
            if targets != 2:
                attributes["intercepts"] = [0.4] * targets
            cases.add(
                name,
                one_node("LinearRegressor", [x], post_transform=transform, **attributes),
                [x],
                tolerance(transform),
            )
        for classes in (2, 3):
            for texts in (False, True):
                for multi in (0, 1):
                    name = f"LinearClassifier-{transform}-{classes}-{'texts' if texts else 'ints'}-{multi}"
                    rng = rng_for(name)
                    x = numbers(rng, 20, 6)
                    attributes = {
                        "coefficients": list(rng.normal(size=6 * classes)),
                        "intercepts": list(rng.normal(size=classes)),
                    }
                    attributes.update(labels(classes, texts), multi_class=multi, post_transform=transform)
                    cases.add(name, one_node("LinearClassifier", [x], 2, **attributes), [x], tolerance(transform))
        for texts in (False, True):
            name = f"LinearClassifier-{transform}-one-row-{'texts' if texts else 'ints'}"
            rng = rng_for(name)
            x = numbers(rng, 20, 6)
            attributes = {"coefficients": list(rng.normal(size=6)), "intercepts": [0.25], "post_transform": transform}
            attributes.update(labels(2, texts))
            cases.add(name, one_node("LinearClassifier", [x], 2, **attributes), [x])
    for dtype in (np.float64, np.int32, np.int64):
        name = f"LinearClassifier-{np.dtype(dtype).name}"
        rng = rng_for(name)
        x = numbers(rng, 20, 6, dtype=dtype)
        attributes = {"coefficients": list(rng.normal(size=18)), "intercepts": [0.25, 0.5, -0.25], **labels(3, False)}
        cases.add(name, one_node("LinearClassifier", [x], 2, **attributes), [x])


# Sums of products in another order, which may nearly cancel each other.
SUMS = 1e-5
KERNELS = {"LINEAR": [0.1, 0.5, 3.0], "POLY": [0.1, 0.5, 3.0], "RBF": [0.2, 0.0, 3.0], "SIGMOID": [0.1, -0.3, 3.0]}


def machines(cases):
    """Adds support vector machines."""
    for kernel, parameters in KERNELS.items():
        for one_class in (0, 1):
            name = f"SVMRegressor-{kernel}-{one_class}"
            rng = rng_for(name)
            x = numbers(rng, 20, 5)
            attributes = {
                "kernel_type": kernel,
                "kernel_params": parameters,
                "support_vectors": list(rng.normal(size=7 * 5)),
                "coefficients": list(rng.normal(size=7)),
                "rho": [0.2],
                "n_supports": 7,
                "one_class": one_class,
            }
            cases.add(name, one_node("SVMRegressor", [x], **attributes), [x], SUMS if kernel == "LINEAR" else 1e-6)
        for classes in (2, 3, 4):
            for probabilities in (False, True):
                for texts in (False, True):
                    for transform in TRANSFORMS if kernel == "RBF" and not texts else TRANSFORMS[:1]:
                        svm_classifier(cases, kernel, parameters, classes, probabilities, texts, transform)
    for dtype in (np.float64, np.int32, np.int64):
        svm_classifier(cases, "RBF", KERNELS["RBF"], 3, True, False, "NONE", dtype)


def svm_classifier(cases, kernel, parameters, classes, probabilities, texts, transform, dtype=np.float32):
    """Adds a classifier of pairs of classes."""
    kind = "-".join(
        [kernel, str(classes), "proba" if probabilities else "votes", "texts" if texts else "ints", transform]
    )
    for sign in ("mixed", "positive") if classes == 2 else ("mixed",):
        name = f"SVMClassifier-{kind}-{sign}-{np.dtype(dtype).name}"
        rng = rng_for(name)
        x = numbers(rng, 20, 5, dtype=dtype)
        vectors = [3, 2, 4, 2][:classes]
        total = sum(vectors)
        pairs = classes * (classes - 1) // 2
        coefficients = rng.normal(size=(classes - 1) * total)
        if sign == "positive":
            coefficients = np.abs(coefficients)
        attributes = {
            "kernel_type": kernel,
            "kernel_params": parameters,
            "support_vectors": list(rng.normal(size=total * 5)),
            "vectors_per_class": vectors,
            "coefficients": list(coefficients),
            "rho": list(rng.normal(size=pairs) / 4),
            "post_transform": transform,
            **labels(classes, texts),
        }
        if probabilities:
            attributes.update(prob_a=list(-1 - rng.rand(pairs)), prob_b=list(rng.normal(size=pairs) / 4))
        least = SUMS if kernel == "LINEAR" else tolerance(transform)
        cases.add(name, one_node("SVMClassifier", [x], 2, **attributes), [x], least)


def add_cases(cases):
    """Adds the cases of this file."""
    linear(cases)
    machines(cases)
