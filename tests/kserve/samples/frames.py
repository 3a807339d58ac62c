"""A model of rows with names, which reads requests and writes responses with KServe's helpers for pandas."""

from typing import Dict, Union

import pandas as pd
from kserve import InferRequest, InferResponse, Model
from kserve.utils.utils import get_predict_input, get_predict_response


class Frames(Model):
    """Multiplies columns."""

    def load(self) -> bool:
        self.ready = True
        return self.ready

    def predict(self, payload: Union[Dict, InferRequest], headers: Dict[str, str] = None) -> Union[Dict, InferResponse]:
        found = get_predict_input(payload, columns=["length", "width"])
        frame = found if isinstance(found, pd.DataFrame) else pd.DataFrame(found, columns=["length", "width"])
        result = pd.DataFrame(
            {
                "area": frame["length"].astype("float64") * frame["width"].astype("float64"),
                "is_square": (frame["length"] == frame["width"]).astype("int64"),
            }
        )
        return get_predict_response(payload, result, self.name)
