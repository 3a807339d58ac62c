"""A model that counts words, with custom routes in addition to those of the protocol."""

from typing import Dict, List, Optional

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.errors import MLServerError
from mlserver.handlers import custom_handler
from mlserver.rest.responses import Response
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class WordCounter(MLModel):
    async def load(self) -> bool:
        self.counts: Dict[str, int] = {}
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        for text in StringCodec.decode_input(payload.inputs[0]):
            self._count(text)
        total = sum(self.counts.values())
        output = ResponseOutput(name="total", shape=[1], datatype="INT64", data=[total])
        return InferenceResponse(model_name=self.name, outputs=[output])

    def _count(self, text: str) -> None:
        for word in text.split():
            self.counts[word] = self.counts.get(word, 0) + 1

    @custom_handler(rest_path="/words")
    async def add(self, texts: List[str]) -> dict:
        """The body is JSON of the annotated type."""
        for text in texts:
            self._count(text)
        return {"total": sum(self.counts.values())}

    @custom_handler(rest_path="/words", rest_method="GET")
    async def most_common(self, limit: int = 2, prefix: Optional[str] = None) -> list:
        """Scalar arguments that are not in the path come from the query."""
        words = [word for word in self.counts if prefix is None or word.startswith(prefix)]
        ordered = sorted(words, key=lambda word: (-self.counts[word], word))
        return [{"word": word, "count": self.counts[word]} for word in ordered[:limit]]

    @custom_handler(rest_path="/words/{word}", rest_method="GET")
    async def count_of(self, word: str) -> int:
        """A path parameter is the argument of the same name."""
        if word not in self.counts:
            raise MLServerError(f"nobody has said '{word}'", 404)
        return self.counts[word]

    @custom_handler(rest_path="/words/{word}", rest_method="DELETE")
    async def forget(self, word: str) -> Response:
        """A response sets its status and headers."""
        gone = self.counts.pop(word, 0)
        return Response({"forgotten": gone}, status_code=202, headers={"X-Words-Left": str(len(self.counts))})

    @custom_handler(rest_path="/echo")
    async def echo(self, payload: InferenceRequest) -> InferenceRequest:
        """The protocol's types are supported, too."""
        return payload
