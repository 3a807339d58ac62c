"""Models with KServe's OpenAI classes, as users write them."""

import os
from http import HTTPStatus

from kserve import Model, ModelServer
from kserve.errors import InvalidInput
from kserve.protocol.rest.openai import (
    ChatPrompt,
    OpenAIChatAdapterModel,
    OpenAIEncoderModel,
    OpenAIGenerativeModel,
    OpenAIProxyModel,
)
from kserve.protocol.rest.openai.errors import OpenAIError, create_error_response
from kserve.protocol.rest.openai.types import (
    ChatCompletion,
    ChatCompletionChoice,
    ChatMessage,
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionChunkChoice,
    Embedding,
    EmbeddingResponseData,
    Rerank,
    UsageInfo,
)

FIELDS = ("n", "max_tokens", "temperature", "stream", "stop", "echo", "logprobs", "priority", "own")


async def chunks(request):
    for word in request.prompt.split():
        choice = CompletionChunkChoice(index=0, text=word)
        chunk = CompletionChunk(model=request.model, choices=[choice])
        yield f"data: {chunk.model_dump_json()}\n\n"
    yield "data: [DONE]\n\n"


async def complete(request):
    prompt = request.prompt
    if prompt == "invalid":
        raise InvalidInput("not this")
    if prompt == "words":
        raise OpenAIError("plain words")
    if prompt == "slow":
        raise OpenAIError(
            create_error_response("slow down", err_type="rate_limit_error", status_code=HTTPStatus.TOO_MANY_REQUESTS)
        )
    if prompt == "returned":
        return create_error_response("too long")
    if request.stream:
        return chunks(request)
    text = str([getattr(request, name, "absent") for name in FIELDS]) if prompt == "fields" else prompt
    choices = [CompletionChoice(index=index, text=text, finish_reason="stop") for index in range(request.n)]
    usage = UsageInfo(prompt_tokens=1, completion_tokens=1, total_tokens=2)
    return Completion(model=request.model, choices=choices, usage=usage)


class Generative(OpenAIGenerativeModel):
    async def create_completion(self, request, raw_request=None, context=None):
        return await complete(request)

    async def create_chat_completion(self, request, raw_request=None, context=None):
        message = ChatMessage(role="assistant", content=request.messages[-1]["content"])
        choices = [ChatCompletionChoice(index=0, message=message)]
        return ChatCompletion(model=request.model, choices=choices, usage=UsageInfo(prompt_tokens=1, total_tokens=1))


class Adapter(OpenAIChatAdapterModel):
    def apply_chat_template(self, request):
        return ChatPrompt(prompt=" ".join(message["content"] for message in request.messages))

    async def create_completion(self, request, raw_request=None, context=None):
        return await complete(request)


class Encoder(Model, OpenAIEncoderModel):
    """Answers V1, too, as the encoder of KServe's server for Hugging Face does."""

    def load(self):
        self.length = 0.5
        self.ready = True
        return self.ready

    async def predict(self, payload, headers=None):
        return {"predictions": [[float(len(text)), self.length] for text in payload["instances"]]}

    async def create_embedding(self, request, raw_request=None, context=None):
        found, _ = await self({"instances": request.input}, {})
        data = [EmbeddingResponseData(index=i, embedding=row) for i, row in enumerate(found["predictions"])]
        return Embedding(model=request.model, data=data, usage=UsageInfo(prompt_tokens=2, total_tokens=2))

    async def create_rerank(self, request, raw_request=None, context=None):
        results = [
            {"index": index, "document": {"text": text}, "relevance_score": 1 / (index + 1)}
            for index, text in enumerate(request.documents)
        ]
        if request.top_n > 0:
            results = results[: request.top_n]
        return Rerank(id="r", model=request.model, usage={"total_tokens": 1}, results=results)


class Proxy(OpenAIProxyModel):
    def preprocess_completion_request(self, request, raw_request=None):
        request.model = request.user or "llm"

    def postprocess_completion(self, completion, request, raw_request=None):
        completion.model = "proxy"

    def postprocess_completion_chunk(self, completion, request, raw_request=None):
        completion.model = "proxy"


if __name__ == "__main__":
    encoder = Encoder("encoder")
    encoder.load()
    proxies = [
        Proxy("proxy", os.environ["UPSTREAM"], health_endpoint="/v1/models/llm"),
        Proxy("down", "http://127.0.0.1:9", health_endpoint=None),
    ]
    ModelServer(enable_grpc=False).start([Generative("llm"), Adapter("adapter"), encoder, *proxies])
