"""The inputs and outputs of pipelines, by task."""

from typing import Dict, List, Tuple

from mlserver.types import MetadataTensor, Parameters

__all__ = ["METADATA", "ONE_ARGUMENT", "ROWS_AND_LABELS"]

Tensors = List[MetadataTensor]


def _tensor(name: str, datatype: str, content_type: str) -> MetadataTensor:
    return MetadataTensor(name=name, datatype=datatype, shape=[-1], parameters=Parameters(content_type=content_type))


def _text(*names: str) -> Tensors:
    return [_tensor(name, "BYTES", "str") for name in names]


# An input without content type is decoded by the last of the alternatives.
_AUDIO = [
    _tensor("inputs", "BYTES", "str"),
    _tensor("inputs", "BYTES", "base64"),
    _tensor("inputs", "FP32", "nplist"),
]
_IMAGE = [
    _tensor("inputs", "BYTES", "str"),
    _tensor("inputs", "BYTES", "base64"),
    _tensor("inputs", "BYTES", "pillow_image"),
]
_LABELED_IMAGE = [
    _tensor("array_inputs", "BYTES", "str"),
    _tensor("array_inputs", "BYTES", "base64"),
    _tensor("array_inputs", "FP32", "nplist"),
    *_text("candidate_labels"),
]
_DOCUMENTS = [_tensor("array_inputs", "BYTES", "hg_jsonlist")]
_LABELS = [_tensor("outputs", "BYTES", "hg_json")]

#: Inputs and outputs of each task, by the task's canonical name. Aliases such as `ner` are resolved before.
METADATA: Dict[str, Tuple[Tensors, Tensors]] = {
    "text-classification": (_text("args"), _LABELS),
    "token-classification": (_text("args"), []),
    "feature-extraction": (_text("args"), [_tensor("outputs", "FP64", "pd")]),
    "question-answering": (_text("context", "question"), []),
    "fill-mask": (_text("array_inputs"), []),
    "summarization": (_text("array_inputs"), []),
    "translation": (_text("array_inputs"), []),
    "text2text-generation": (_text("array_inputs"), []),
    "text-generation": (_text("array_inputs"), []),
    "zero-shot-classification": (_text("array_inputs", "candidate_labels"), []),
    "table-question-answering": (_DOCUMENTS, []),
    "visual-question-answering": (_DOCUMENTS, []),
    "conversational": ([_tensor("array_inputs", "FP32", "hg_conversation")], []),
    "audio-classification": (_AUDIO, [_tensor("output_*", "BYTES", "hg_json")]),
    "automatic-speech-recognition": (_AUDIO, [_tensor("output_*", "BYTES", "hg_json")]),
    "image-classification": (_IMAGE, []),
    "image-segmentation": (_IMAGE, []),
    "object-detection": (_IMAGE, []),
    "zero-shot-image-classification": (_LABELED_IMAGE, []),
}

#: Tasks whose `args` are a single argument with several elements.
ONE_ARGUMENT = frozenset(("text-classification", "token-classification", "feature-extraction"))

#: Tasks whose requests contain elements and labels that apply to all of them.
ROWS_AND_LABELS = frozenset(
    (
        "zero-shot-classification",
        "zero-shot-image-classification",
        "zero-shot-audio-classification",
        "zero-shot-object-detection",
    )
)
