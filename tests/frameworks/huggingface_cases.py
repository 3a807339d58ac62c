"""Pipelines of transformers, and the requests to them; `huggingface_models.py` creates the models."""

import base64
import json
import pathlib
import struct
import zlib
from typing import Any, Dict, List

from casefile import Case, infer, metadata, refused, settings, tensor

IMPLEMENTATION = "mlserver_huggingface.HuggingFaceRuntime"

#: The task of each model, the function that creates it, and additional settings.
MODELS: Dict[str, Dict[str, Any]] = {
    "feelings": {"task": "text-classification"},
    "entities": {"task": "token-classification"},
    "features": {"task": "feature-extraction"},
    "answers": {"task": "question-answering"},
    "blanks": {"task": "fill-mask"},
    "topics": {"task": "zero-shot-classification"},
    "stories": {"task": "text-generation"},
    "summary": {"task": "summarization"},
    "french": {"task": "translation", "task_suffix": "_en_to_fr", "model": "summary"},
    "rewrite": {"task": "text2text-generation", "model": "summary"},
    "talks": {"task": "conversational", "model": "stories"},
    "images": {"task": "image-classification"},
    "segments": {"task": "image-segmentation"},
    "sounds": {"task": "audio-classification"},
    "dictation": {"task": "automatic-speech-recognition"},
}


#: The sums of 32-bit floats in networks depend on the instructions of the processor.
TOLERANCE = 1e-4


def absent() -> List[str]:
    """Returns the models whose tasks the installed transformers lacks, and the cases that it answers differently."""
    import transformers
    from transformers.pipelines import PIPELINE_REGISTRY

    tasks = PIPELINE_REGISTRY.get_supported_tasks()
    gone = [name for name, described in MODELS.items() if described["task"] not in tasks]
    # Since version 5, unknown arguments of a pipeline are ignored.
    return gone if transformers.__version__.startswith("4.") else [*gone, "feelings: no such argument"]


def models(folder: pathlib.Path) -> None:
    """Creates and saves the models."""
    import huggingface_models as make

    for name, described in MODELS.items():
        extra = {key: value for key, value in described.items() if key != "model"}
        # The original resolves it in the server's working directory; so does ours.
        extra["pretrained_model"] = f"./{described.get('model', name)}/model"
        settings(folder / name, IMPLEMENTATION, "./model", **extra)
    two = {"id2label": make.LABELS, "label2id": {label: index for index, label in make.LABELS.items()}}
    kinds = {0: "contradiction", 1: "entailment"}
    make.bert(folder / "feelings/model", "SequenceClassification", **two)
    make.bert(folder / "entities/model", "TokenClassification", id2label={0: "O", 1: "B-PER"})
    make.bert(folder / "features/model", "")
    make.bert(folder / "answers/model", "QuestionAnswering")
    make.bert(folder / "blanks/model", "MaskedLM")
    make.bert(
        folder / "topics/model", "SequenceClassification", id2label=kinds, label2id={v: k for k, v in kinds.items()}
    )
    make.gpt(folder / "stories/model")
    make.bart(folder / "summary/model")
    make.vit(folder / "images/model")
    make.segformer(folder / "segments/model")
    make.wav2vec(folder / "sounds/model", ctc=False)
    make.wav2vec(folder / "dictation/model", ctc=True)


def png(red: int) -> str:
    """Returns the base64 of an image file of 16 by 16 pixels with a gradient from black to a color."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(c for x in range(16) for c in (x * red // 16, y * 15, 90)) for y in range(16))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0))
    file = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return base64.b64encode(file).decode()


def text(name: str, *texts: str) -> Dict[str, Any]:
    """Returns an input of texts."""
    return tensor(name, "BYTES", [len(texts)], list(texts))


def raw(name: str, datatype: str, value: Any) -> Dict[str, Any]:
    """Returns an input of one value."""
    return tensor(name, datatype, [1], [value], "raw")


def documents(name: str, *values: Any, content_type: str = "hg_jsonlist") -> Dict[str, Any]:
    """Returns an input of JSON."""
    return tensor(name, "BYTES", [len(values)], [json.dumps(value) for value in values], content_type)


def images(name: str, *reds: int) -> Dict[str, Any]:
    """Returns an input of images."""
    return tensor(name, "BYTES", [len(reds)], [png(red) for red in reds], "pillow_image")


WAVE = [round(((step * 37) % 100 - 50) / 50, 2) for step in range(400)]
GOOD, BAD = "this movie was great !", "it was very bad"
QUESTION, CONTEXT = "who lives in town ?", "the cat lives in the house . the dog lives in town ."
TALK = {"uuid": "8c1ad8fe-f0a8-4b6a-8d0f-6d1f0c0e1a55", "past_user_inputs": [], "generated_responses": []}
SHORT = raw("max_new_tokens", "INT64", 4)
#: Greedy decoding.
SURE = raw("do_sample", "BOOL", False)

CASES: List[Case] = [
    *(metadata(name) for name in MODELS),
    infer("feelings", "one text", text("args", GOOD)),
    infer("feelings", "alone in its list", text("array_inputs", GOOD)),
    infer("feelings", "two texts in a list", text("array_inputs", GOOD, BAD)),
    infer("feelings", "two texts", text("args", GOOD, BAD), same_as="feelings: two texts in a list"),
    infer("feelings", "a content type", {**text("args", GOOD), "parameters": {"content_type": "str"}}),
    infer("feelings", "all labels", text("array_inputs", GOOD, BAD), documents("top_k", None, content_type="hg_json")),
    infer("feelings", "an argument of its own", text("args", GOOD), raw("function_to_apply", "BYTES", "none")),
    infer("feelings", "outputs are not looked at", text("args", GOOD), outputs=["foo"]),
    infer("feelings", "a parameter is no argument", text("args", GOOD), parameters={"top_k": 2}),
    infer("entities", "one text", text("args", "i hate the dog")),
    infer("entities", "one text without any", text("args", "the cat lives in town")),
    infer("entities", "two texts in a list", text("array_inputs", "the cat", "i hate the dog")),
    infer("features", "one text", text("args", "a cat")),
    infer("features", "two texts in a list", text("array_inputs", "a cat", "the very good dog")),
    infer("answers", "one question", text("question", QUESTION), text("context", CONTEXT)),
    infer("answers", "two questions", text("question", QUESTION, "who was bad ?"), text("context", CONTEXT, "it was him .")),
    infer("blanks", "one text", text("array_inputs", "the [MASK] sat on the mat")),
    infer("blanks", "two texts", text("array_inputs", "the [MASK] sat", "i like [MASK] ."), raw("top_k", "INT64", 2)),
    infer("topics", "one text", text("array_inputs", GOOD), text("candidate_labels", "politics", "science", "sport")),
    infer("topics", "two texts", text("array_inputs", GOOD, BAD), text("candidate_labels", "sport", "science")),
    infer("stories", "one text", text("array_inputs", "the cat"), SHORT, SURE),
    infer("stories", "two texts", text("array_inputs", "the cat", "i like"), SHORT, SURE),
    infer("stories", "without what was asked", text("array_inputs", "the cat"), SHORT, SURE,
          raw("return_full_text", "BOOL", False)),
    infer("summary", "one text", text("array_inputs", "the cat sat on the mat , and the dog was not good .")),
    infer("summary", "two texts", text("array_inputs", "the cat sat on the mat .", "i like the house in the town .")),
    infer("french", "one text", text("array_inputs", "the cat")),
    infer("rewrite", "one text", text("array_inputs", "the cat sat")),
    infer("talks", "one", documents(
        "array_inputs", {**TALK, "new_user_input": "the cat"}, content_type="hg_conversation"), SHORT),
    infer("images", "one", images("array_inputs", 200)),
    infer("images", "two", images("array_inputs", 200, 90)),
    infer("images", "as they are by metadata", {**images("inputs", 200), "parameters": {}}, same_as="images: one"),
    infer("segments", "one", images("array_inputs", 200)),
    infer("sounds", "one", tensor("array_inputs", "FP32", [1, 400], WAVE, "nplist")),
    infer("sounds", "two", tensor("array_inputs", "FP32", [2, 200], WAVE, "nplist")),
    infer("sounds", "as they are by metadata", tensor("inputs", "FP32", [1, 400], WAVE), same_as="sounds: one"),
    infer("dictation", "one", tensor("array_inputs", "FP32", [1, 400], WAVE, "nplist")),
    # Invalid requests.
    infer("feelings", "no such argument", text("args", GOOD), text("foo", "bar"), ours={"status": 400}),
    infer("feelings", "no inputs", ours=refused("the request has no inputs: expected the arguments of a pipeline")),
    infer("feelings", "too long", text("args", "cat " * 60), ours=refused(
        "a text has 62 tokens, more than the 48 that the model takes")),
    infer("feelings", "no JSON", tensor("array_inputs", "BYTES", [1], ["{"], "hg_jsonlist"), ours={"status": 400}),
    infer("blanks", "nothing to fill in", text("array_inputs", "the cat"), ours=refused(
        "No mask_token ([MASK]) found on the input")),
    infer("images", "no image", tensor("array_inputs", "BYTES", [1], ["aGVsbG8="], "pillow_image"), ours=refused(
        "There was an error encoding / decoding the payload: an image cannot be read: its format is unknown to Pillow")),
    infer("images", "no base64", tensor("array_inputs", "BYTES", [1], ["%"], "pillow_image"), ours={"status": 400}),
    infer("sounds", "another shape", tensor("inputs", "FP32", [1, 3, 2], WAVE[:6]), ours={"status": 400}),
]  # fmt: skip
