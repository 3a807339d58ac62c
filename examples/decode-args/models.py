"""A `predict` that takes and returns plain values, with codecs chosen by its type hints."""

from typing import List, Optional, Tuple

import numpy as np
from mlserver import MLModel
from mlserver.codecs import decode_args


class Ranker(MLModel):
    """Scores texts by the number of words that they share with a question, and returns the best."""

    @decode_args
    async def predict(
        self, question: List[str], texts: List[str], weights: Optional[np.ndarray] = None
    ) -> Tuple[np.ndarray, List[str]]:
        wanted = set(question[0].lower().split())
        scores = np.array([len(wanted & set(text.lower().split())) for text in texts], dtype=np.float32)
        if weights is not None:
            scores = scores * weights.ravel()
        return scores, [texts[int(scores.argmax())]]
