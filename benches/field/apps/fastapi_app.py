"""Plain handlers of FastAPI. They wait for nothing, so they are coroutines, as "Concurrency and async / await" recommends."""

from fastapi import FastAPI
from predictors import LOADERS
from pydantic import BaseModel


class Rows(BaseModel):
    """The body of a request."""

    rows: list[list[float]]


app = FastAPI()
models = {name: load() for name, load in LOADERS.items()}


@app.post("/{model}")
async def predict(model: str, body: Rows):
    """Predicts rows."""
    return {"predictions": models[model](body.rows).tolist()}
