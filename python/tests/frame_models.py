"""The model that receives the frames of `tests/fixtures/frames`."""

import asyncio
from contextlib import suppress

import mlserver
from mlserver import MLModel
from mlserver._worker.frames import read_tensors
from mlserver.cancellation import cancellation_var
from mlserver.handlers import custom_handler
from mlserver.rest import Request, Response
from mlserver.types import InferenceResponse, Parameters, ResponseOutput

mlserver.register("frames_seen", "Frames that were seen")

with suppress(ImportError):
    from prometheus_client import Counter

    Counter("frames_counted", "Frames that were counted", ["of"]).labels('ä "b"').inc(3)


class Raw(Response):
    media_type = "application/x-raw"

    def render(self, content):
        return content


class Echo(MLModel):
    async def predict(self, payload):
        if payload.id == "wait":
            await asyncio.sleep(60)
        if payload.id == "ask":
            return await self.ask(payload)
        if payload.id == "fail":
            raise ValueError("boom")
        self.seen = payload
        if payload.id == "r1":
            mlserver.log(frames_seen=0.5)
        return InferenceResponse(
            model_name=self.name,
            parameters=Parameters(headers={"X-Answer": "because"}, inputs=len(payload.inputs)),
            outputs=[
                ResponseOutput(
                    name=tensor.name,
                    shape=tensor.shape,
                    datatype=tensor.datatype,
                    parameters=tensor.parameters,
                    data=tensor.data,
                )
                for tensor in payload.inputs
            ],
        )

    async def ask(self, payload):
        """Answers with what the model `other` answers."""
        call = cancellation_var.get()
        elements = payload.inputs[0].data.elements
        tensor = {"name": "x", "datatype": "INT64", "shape": [1], "size": 8}
        head = {"id": "ask", "headers": [["x-asked", "ä"]], "outputs": ["y"], "inputs": [tensor]}
        head, tail = await call.ask("other", head, (elements.buffer,))
        assert (head["parameters"], head["headers"]) == ({"kept": True}, [["x-step", "ä"]])
        outputs = [
            ResponseOutput(name=tensor.name, shape=tensor.shape, datatype=tensor.datatype, data=tensor.data)
            for tensor in read_tensors(head, tail)
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)

    async def predict_stream(self, payloads):
        async for payload in payloads:
            yield await self.predict(payload)

    async def pieces(self):
        yield "piece ä"
        yield {"n": 1}

    @custom_handler(rest_path="/echo/{name}", rest_method="put")
    async def echo(self, name: str, q: int, request: Request):
        if q == 3:
            return self.pieces()
        assert (name, q, request.path_params) == ("ä b", 2, {"name": "ä b"})
        return Raw(await request.body(), 201, {"X-Seen": ", ".join(request.headers.getlist("x-many"))})
