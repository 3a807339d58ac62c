"""`mlserver.beam` on Beam's direct runner."""

import apache_beam as beam
import mlserver.beam
import pytest
from apache_beam.ml.inference.base import RunInference
from apache_beam.options.pipeline_options import PipelineOptions
from conftest import FEATURES, wait_for_end_of_children


def run(handler, elements, target, **arguments):
    """Runs a pipeline, and returns its predictions in the order of `id`."""
    options = PipelineOptions(["--runner=DirectRunner", "--direct_num_workers=1"])
    with beam.Pipeline(options=options) as pipeline:
        predictions = pipeline | beam.Create(elements) | RunInference(handler, **arguments)
        lines = predictions | beam.Map(lambda result: f"{result.example['id']} {result.inference['predict']}")
        _ = lines | beam.io.WriteToText(str(target), shard_name_template="")
    wait_for_end_of_children()
    lines = [line.split() for line in target.read_text().splitlines()]
    return [prediction for _, prediction in sorted(lines, key=lambda line: int(line[0]))]


@pytest.mark.parametrize(("name", "columns"), [("lightgbm", FEATURES), ("pipeline", ["city", *FEATURES])])
def test_inference_equals_infer(models, table, embedded, tmp_path, name, columns):
    rows = table.slice(0, 2_000)
    wanted = embedded(models / name, rows, columns)["predict"]
    handler = mlserver.beam.ModelHandler(str(models / name), max_batch_size=500)
    found = run(handler, rows.select(["id", *columns]).to_pylist(), tmp_path / "predictions")
    assert found == [str(value) for value in wanted.tolist()]


def test_row_that_the_model_rejects_fails_the_pipeline(models, tmp_path):
    elements = [
        {"id": 0, "age": 1.0, "income": 1.0, "visits": None},
        {"id": 1, "age": 1.0, "income": 1.0, "visits": (1 << 53) + 1},
    ]
    with pytest.raises(Exception, match="would lose digits as FP64"):
        run(mlserver.beam.ModelHandler(str(models / "lightgbm"), min_batch_size=2), elements, tmp_path / "predictions")
