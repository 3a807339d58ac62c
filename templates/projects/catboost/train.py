"""Trains a classifier of iris flowers and saves it as `model.cbm`.

    python -m pip install --requirement requirements-train.txt
    python train.py
"""

from catboost import CatBoostClassifier
from sklearn.datasets import load_iris

x, y = load_iris(return_X_y=True)
model = CatBoostClassifier(
    iterations=20, depth=3, learning_rate=0.3, random_seed=7, thread_count=1, verbose=False, allow_writing_files=False
)
model.fit(x, y)
model.save_model("model.cbm")
print(f"accuracy on its own data: {model.score(x, y):.3f}")
