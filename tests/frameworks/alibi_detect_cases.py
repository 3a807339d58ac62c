"""Detectors of alibi-detect, and the requests to them."""

import importlib.util
import pathlib
from typing import List

from casefile import Case, infer, metadata, settings, tensor

IMPLEMENTATION = "mlserver_alibi_detect.AlibiDetectRuntime"


def absent() -> List[str]:
    """Returns the models that cannot be read without TensorFlow, if it is not installed."""
    return [] if importlib.util.find_spec("tensorflow") else ["ellipse", "outliers", "series"]


def models(folder: pathlib.Path) -> None:
    """Creates and saves the detectors."""
    import numpy
    from alibi_detect.cd import ChiSquareDrift, CVMDrift, KSDrift, TabularDrift
    from alibi_detect.od import IForest, Mahalanobis, SpectralResidual
    from alibi_detect.saving import save_detector

    def write(name, detector, **extra):
        save_detector(detector, str(settings(folder / name, IMPLEMENTATION, "./detector", **extra) / "detector"))

    random = numpy.random.default_rng(7)
    rows = random.normal(size=(60, 3)).round(3)
    kinds = random.integers(0, 3, size=(60, 2))
    write("drift", KSDrift(rows, p_val=0.05))
    write("features", KSDrift(rows, p_val=0.05), predict_parameters={"drift_type": "feature"})
    write("batches", KSDrift(rows, p_val=0.05), batch_size=3)
    write("kinds", ChiSquareDrift(kinds, p_val=0.05))
    write("mixed", TabularDrift(numpy.hstack([rows, kinds]), p_val=0.05, categories_per_feature={3: None, 4: None}))
    write("distance", CVMDrift(rows, p_val=0.05))
    numpy.random.seed(7)
    forest = IForest(threshold=0.0, n_estimators=5)
    forest.fit(rows)
    write("outliers", forest, predict_parameters={"return_instance_score": True})
    write("ellipse", Mahalanobis(threshold=5.0, start_clip=30))
    series = SpectralResidual(threshold=1.0, window_amp=10, window_local=10, n_est_points=5)
    write("series", series)
    write("wrong", KSDrift(rows, p_val=0.05), predict_parameters={"drift_type": "none"})


X = [0.1, 0.2, 0.3, -0.4, 1.5, -0.6, 0.7, -1.8, 0.9, -1.0, 1.1, 0.2]
FOUR = tensor("x", "FP64", [4, 3], X)
FAR = tensor("x", "FP64", [4, 3], [value + 3 for value in X])
KINDS = tensor("x", "INT64", [4, 2], [0, 1, 2, 0, 1, 1, 0, 2])
WAVE = [float(step % 5) for step in range(30)]

CASES: List[Case] = [
    metadata("drift"),
    infer("drift", "near", FOUR),
    infer("drift", "far", FAR),
    infer("drift", "single precision", FOUR | {"datatype": "FP32"}),
    infer("drift", "one row", tensor("x", "FP64", [1, 3], X[:3])),
    infer("drift", "outputs are not looked at", FOUR, outputs=["is_drift"]),
    infer("drift", "a frame", *(tensor(name, "FP64", [2], [0.1, 0.5]) for name in "abc"), content_type="pd"),
    infer("features", "far", FAR),
    infer("batches", "first", FOUR),
    infer("batches", "second", FAR),
    infer("batches", "third", tensor("x", "FP64", [1, 3], X[:3])),
    infer("batches", "first again", FAR),
    infer("kinds", "near", KINDS),
    infer("mixed", "near", tensor("x", "FP64", [2, 5], [0.1, 0.2, 0.3, 1, 2, 0.4, -0.5, 0.6, 0, 1])),
    infer("distance", "far", FAR),
    infer("outliers", "both", tensor("x", "FP64", [2, 3], [0.1, 0.2, 0.3, 9.0, -9.0, 9.0])),
    infer("ellipse", "both", tensor("x", "FP64", [2, 3], [0.1, 0.2, 0.3, 9.0, -9.0, 9.0])),
    infer("ellipse", "again", tensor("x", "FP64", [2, 3], [0.1, 0.2, 0.3, 9.0, -9.0, 9.0])),
    infer("series", "a peak", tensor("x", "FP64", [30], [*WAVE[:20], 40.0, *WAVE[21:]])),
    # Invalid requests.
    infer("drift", "too few columns", tensor("x", "FP64", [2, 2], X[:4])),
    infer("drift", "text", tensor("x", "BYTES", [1, 3], ["a", "b", "c"]), ours={"status": 400}),
    infer("drift", "no inputs"),
    infer("drift", "two inputs", FOUR, KINDS),
    infer("wrong", "near", FOUR),
]  # fmt: skip
