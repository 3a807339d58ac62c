"""Saves small models with MLflow, and records the answers of MLflow's own scoring server.

python tests/goldens/mlflow/generate.py [MODEL ...]    # in an environment with requirements.txt

With names of models, only these are saved and asked.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "frameworks"))

from mlflow_scoring import CSV, ask, record  # noqa: E402

FILE = HERE / "scoring.json"
#: Files that MLflow writes next to the model, which no test reads.
BESIDE = ["conda.yaml", "python_env.yaml", "requirements.txt"]


def models(wanted):
    """Trains the models, and saves those that are wanted."""
    import catboost
    import lightgbm
    import mlflow.catboost
    import mlflow.lightgbm
    import mlflow.sklearn
    import mlflow.xgboost
    import numpy
    import pandas
    import xgboost
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    random = numpy.random.default_rng(7)
    size = 80
    table = pandas.DataFrame(
        {
            "city": random.choice(["Oslo", "Rome", "Łódź"], size),
            "age": random.integers(18, 80, size),
            "height": random.normal(170, 10, size).round(1),
            "member": random.random(size) < 0.5,
        }
    )
    label = numpy.where((table.age > 45) ^ (table.city == "Rome"), "ja", "nej")
    rows = random.normal(size=(size, 3)).round(3)
    target = (rows @ [1.0, -2.0, 0.5]).round(3)
    classes = numpy.digitize(target, [-1, 1])
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
    doubles = Schema([ColSpec("double", name) for name in "abc"])
    mixed = Schema([ColSpec("double", "a"), ColSpec("float", "b"), ColSpec("integer", "c")])
    numbers = Schema([ColSpec("double")])
    options = {"pip_requirements": ["mlflow"]}

    def tensor(name, *shape):
        return Schema([TensorSpec(numpy.dtype(name), shape)])

    def save(library, name, model, inputs=None, outputs=None, **more):
        if name not in wanted:
            return
        signature = ModelSignature(inputs, outputs) if inputs is not None else None
        library.save_model(model, HERE / name / "model", signature=signature, **options, **more)
        for file in BESIDE:
            (HERE / name / "model" / file).unlink()

    columns = ColumnTransformer(
        [("city", OneHotEncoder(handle_unknown="ignore"), ["city"]), ("rest", StandardScaler(), ["age", "height"])],
        remainder="passthrough",
    )
    kinds = [("string", "city"), ("long", "age"), ("double", "height"), ("boolean", "member")]
    people = Schema([ColSpec(*kind) for kind in kinds])
    pipeline = make_pipeline(columns, LogisticRegression()).fit(table, label)
    save(mlflow.sklearn, "pipeline", pipeline, people, Schema([ColSpec("string")]), serialization_format="cloudpickle")
    linear = LinearRegression().fit(rows, target)
    save(
        mlflow.sklearn, "linear", linear, tensor("float64", -1, 3), tensor("float64", -1), serialization_format="pickle"
    )
    column = LinearRegression().fit(frame, target.reshape(-1, 1))
    save(mlflow.sklearn, "column", column, doubles, numbers)
    logistic = LogisticRegression().fit(rows, classes)
    save(mlflow.sklearn, "probabilities", logistic, tensor("float32", -1, 3), pyfunc_predict_fn="predict_proba")
    save(mlflow.sklearn, "plain", logistic)

    booster = xgboost.train({"objective": "binary:logistic", "max_depth": 2}, xgboost.DMatrix(frame, classes == 1), 4)
    save(mlflow.xgboost, "xgboost_booster", booster, doubles, tensor("float32", -1))
    softprob = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2}
    three = xgboost.train(softprob, xgboost.DMatrix(rows, classes), 3)
    save(mlflow.xgboost, "xgboost_three", three, tensor("float64", -1, 3), model_format="json")
    classifier = xgboost.XGBClassifier(n_estimators=4, max_depth=2).fit(frame, classes)
    save(mlflow.xgboost, "xgboost_classifier", classifier, mixed)
    regressor = xgboost.XGBRegressor(n_estimators=30, max_depth=2, early_stopping_rounds=2)
    regressor.fit(rows[:60], target[:60], eval_set=[(rows[60:], target[60:])], verbose=False)
    save(mlflow.xgboost, "xgboost_regressor", regressor, tensor("float32", -1, 3), model_format="ubj")
    save(mlflow.xgboost, "xgboost_stopped", regressor.get_booster(), tensor("float32", -1, 3))

    small = {"verbose": -1, "num_leaves": 4, "min_data_in_leaf": 5, "min_child_samples": 5}
    grown = lightgbm.train({**small, "objective": "regression"}, lightgbm.Dataset(frame, target), 4)
    save(mlflow.lightgbm, "lightgbm_booster", grown, mixed, numbers)
    wrapper = lightgbm.LGBMClassifier(n_estimators=3, **small).fit(frame, label)
    save(mlflow.lightgbm, "lightgbm_classifier", wrapper, doubles)
    multiclass = lightgbm.train(
        {**small, "objective": "multiclass", "num_class": 3}, lightgbm.Dataset(rows, classes), 2
    )
    save(mlflow.lightgbm, "lightgbm_three", multiclass)

    quiet = {"iterations": 4, "depth": 2, "verbose": False, "allow_writing_files": False, "thread_count": 1}
    cities = catboost.CatBoostClassifier(**quiet, cat_features=["city"]).fit(table.drop(columns="member"), label)
    save(mlflow.catboost, "catboost_cities", cities, Schema([ColSpec(*kind) for kind in kinds[:3]]))
    numbered = catboost.CatBoostClassifier(**quiet).fit(rows, classes)
    save(mlflow.catboost, "catboost_classes", numbered)
    raw = catboost.CatBoost({**quiet, "loss_function": "Logloss"}).fit(frame, classes == 1)
    save(mlflow.catboost, "catboost_raw", raw, doubles)
    scores = catboost.CatBoostRegressor(**quiet, loss_function="RMSEWithUncertainty").fit(frame, target)
    save(mlflow.catboost, "catboost_uncertain", scores, doubles, format="json")
    number = catboost.CatBoostRegressor(**quiet).fit(rows, target)
    save(mlflow.catboost, "catboost_number", number)
    word = catboost.CatBoostClassifier(**quiet).fit(rows, numpy.where(classes == 1, "ja", "nej"))
    save(mlflow.catboost, "catboost_word", word)


PEOPLE = [["Oslo", 30, 170.5, True], ["Łódź", 61, 182, False]]
NAMES = ["city", "age", "height", "member"]
SPLIT = {"columns": NAMES, "data": PEOPLE}
RECORDS = [dict(zip(NAMES, row)) for row in PEOPLE]
ROWS = [[0.5, -1.25, 2], [1, 0, -3]]
ABC = [dict(zip("abc", row)) for row in ROWS]
LISTS = {name: [row[name] for row in ABC] for name in "abc"}


def every_form(model):
    """Returns the same two rows in all forms."""
    return [
        ask(model, {"dataframe_split": {"columns": ["a", "b", "c"], "data": ROWS}}),
        ask(model, {"dataframe_split": {"data": ROWS}}),
        ask(model, {"dataframe_split": {"columns": ["c", "b", "a"], "data": [row[::-1] for row in ROWS]}}),
        ask(model, {"dataframe_records": ABC}),
        ask(model, {"inputs": ROWS}),
        ask(model, {"inputs": LISTS}),
        ask(model, {"inputs": ABC}),
        ask(model, {"instances": ROWS}),
        ask(model, {"instances": ABC}),
        ask(model, "a,b,c\n0.5,-1.25,2\n1,0,-3\n", CSV),
        ask(model, {"dataframe_records": [{**ABC[0], "a": None}]}),
        ask(model, {"inputs": [[None, 1, 2]]}) if model not in PLAIN else ask(model, {"inputs": [[True, 1, 2]]}),
        ask(model, {"inputs": []}),
        ask(model, {"inputs": [[1, 2]]}),
        ask(model, {"inputs": [1, 2, 3]}),
        ask(model, {"inputs": [[[1], [2], [3]]]}),
        ask(model, {"inputs": [["1", " 2.5 ", "3"]]}),
        ask(model, {"inputs": [["x", "y", "z"]]}),
        ask(model, {"inputs": [[1, 2, 3], [4]]}),
        ask(model, {"dataframe_split": {"columns": ["a", "b", "c"], "data": []}}),
        ask(model, {"dataframe_split": {"columns": ["a", "b", "c"], "data": [["1", "2", "3"]]}}),
        ask(model, {"messages": [{"role": "user"}]}),
        ask(model, '{"dataframe_split": {"columns": ["a", "b", "c"], "data": [[NaN, 0.5, 1], [Infinity, 2, 3]]}}'),
    ]


PLAIN = ["plain", "lightgbm_three", "catboost_classes", "catboost_number", "catboost_word"]
ABC_MODELS = ["linear", "column", "probabilities", "xgboost_booster", "xgboost_three", "xgboost_classifier"]
ABC_MODELS += ["xgboost_regressor", "xgboost_stopped", "lightgbm_booster", "lightgbm_classifier", *PLAIN]
ABC_MODELS += ["catboost_raw", "catboost_uncertain"]

CASES = [
    *(ask("pipeline", "", method="GET", path=path) for path in ["/ping", "/health", "/version"]),
    ask("pipeline", {"dataframe_split": SPLIT}),
    ask("pipeline", {"dataframe_split": {**SPLIT, "index": ["x", "y"]}, "params": {"any": 1}}),
    ask("pipeline", {"dataframe_split": {**SPLIT, "index": [1]}}),
    ask("pipeline", {"dataframe_records": RECORDS}),
    ask("pipeline", {"inputs": {name: [row[name] for row in RECORDS] for name in NAMES}}),
    ask("pipeline", {"inputs": RECORDS}),
    ask("pipeline", {"inputs": RECORDS[0]}),
    ask("pipeline", {"instances": RECORDS}),
    ask("pipeline", {"instances": [RECORDS[0], {"city": "Rome"}]}),
    ask("pipeline", {"inputs": {**{name: [row[name] for row in RECORDS] for name in NAMES}, "age": [1]}}),
    ask("pipeline", {"inputs": {**{name: [row[name] for row in RECORDS] for name in NAMES}, "more": [1, 2]}}),
    ask("pipeline", "city,age,height,member\nOslo,30,170.5,True\nŁódź,61,182,false\n", CSV),
    ask("pipeline", 'height,age,city,member\r\n170.5,30,"Os""lo",1\r\n\r\n', CSV),
    ask("pipeline", "city,age,height,member\nOslo,30.5,170.5,True\n", CSV),
    ask("pipeline", "city,age,height,member\nOslo,,170.5,True\n", CSV),
    ask("pipeline", "city,age,height,member\nOslo,x,170.5,True\n", CSV),
    ask("pipeline", "city,age,height,member\nOslo,1,170.5,x\n", CSV),
    ask("pipeline", "city,age,height,member\nOslo,1,1,1\nOslo,1,1,1,1\n", CSV),
    ask("pipeline", "city,age\nOslo,1\n", CSV),
    ask("pipeline", "city,age,height,member\n", CSV),
    ask("pipeline", {"dataframe_records": [{**RECORDS[0], "age": 30.9}]}),
    ask("pipeline", {"dataframe_records": [{**RECORDS[0], "age": None}]}),
    ask("pipeline", {"dataframe_records": [{**RECORDS[0], "age": "thirty"}]}),
    ask("pipeline", {"dataframe_records": [{**RECORDS[0], "age": "30"}]}),
    ask("pipeline", {"dataframe_records": [{**RECORDS[0], "height": None}]}),
    ask("pipeline", {"dataframe_records": [{**RECORDS[0], "height": "170.5"}]}),
    ask("pipeline", {"dataframe_records": [{**RECORDS[0], "height": [1]}]}),
    ask("pipeline", {"dataframe_records": [{**RECORDS[0], "height": {}}]}),
    ask("pipeline", {"dataframe_records": [{**RECORDS[0], "member": "no"}]}),
    ask("pipeline", {"dataframe_records": [{**RECORDS[0], "member": 0}]}),
    ask("pipeline", {"dataframe_records": [RECORDS[0], {"city": "Rome", "age": 1, "member": False}]}),
    ask("pipeline", {"dataframe_records": []}),
    ask("pipeline", {"instances": [{**RECORDS[0], "age": "x"}]}),
    ask("pipeline", {"instances": [{**RECORDS[0], "age": None}]}),
    ask("pipeline", {"instances": [{**RECORDS[0], "city": 5}]}),
    ask("pipeline", {"dataframe_split": {"columns": NAMES[:2], "data": [["Oslo", 3]]}}),
    ask("pipeline", {"dataframe_split": {"columns": 5, "data": []}}),
    ask("pipeline", {"inputs": "text"}),
    ask("pipeline", {"inputs": ["text"]}),
    ask("pipeline", {"prompt": "hi"}),
    *(case for model in ABC_MODELS for case in every_form(model)),
    ask("catboost_cities", {"dataframe_split": {"columns": NAMES[:3], "data": [row[:3] for row in PEOPLE]}}),
    ask("catboost_cities", {"dataframe_records": RECORDS}),
    ask("catboost_cities", {"inputs": {name: [row[name] for row in RECORDS] for name in NAMES[:3][::-1]}}),
    ask("catboost_cities", "height,city,age\n170.5,Oslo,30\n182,Paris,61\n", CSV),
    ask("catboost_cities", {"dataframe_records": [{"city": "Rome", "age": 30, "height": None}]}),
    ask("catboost_cities", {"dataframe_records": [{"city": None, "age": 30, "height": 1}]}),
    ask("catboost_cities", {"dataframe_records": [{"city": "Rome", "age": 30}]}),
    ask("catboost_cities", {"dataframe_records": [{"city": 5, "age": 30, "height": 1}]}),
]


#: What a case asks.
ASKED = ["method", "path", "content_type", "body"]


def main():
    """Writes models and answers."""
    # MLflow would create a database in the working directory.
    os.environ["MLFLOW_TRACKING_URI"] = f"file://{tempfile.gettempdir()}/mlruns"
    names = list(dict.fromkeys(case["model"] for case in CASES))
    wanted = sys.argv[1:] or names
    for name in wanted:
        shutil.rmtree(HERE / name, ignore_errors=True)
    models(wanted)
    known = json.loads(FILE.read_text(encoding="utf-8"))
    for model in names:
        cases = [case for case in CASES if case["model"] == model]
        if model in wanted:
            record(HERE, model, cases)
        else:
            answers = {str([case[key] for key in ASKED]): case["answer"] for case in known if case["model"] == model}
            for case in cases:
                case["answer"] = answers.get(str([case[key] for key in ASKED]), {"text": "IndexError"})
    # The message names an arbitrary column of a Python set.
    cases = [case for case in CASES if "IndexError" not in case["answer"]["text"]]
    lines = ",\n".join(f" {json.dumps(case)}" for case in cases)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
