"""The settings of explainers, and the supported kinds of explainers."""

from typing import Any, Dict, NamedTuple, Optional

from mlserver._frameworks import runtime_settings
from mlserver.errors import MLServerError
from mlserver.settings import BaseSettings, ModelSettings

__all__ = [
    "ENV_PREFIX_ALIBI_EXPLAIN_SETTINGS",
    "EXPLAINER_KINDS",
    "AlibiExplainSettings",
    "ExplainerKind",
    "get_explain_settings",
]

ENV_PREFIX_ALIBI_EXPLAIN_SETTINGS = "MLSERVER_MODEL_ALIBI_EXPLAIN_"


class ExplainerKind(NamedTuple):
    """One of alibi's explainers."""

    #: Its class in `alibi.explainers`.
    name: str
    #: Whether it calls a remote model. Otherwise it loads the model's file.
    is_remote: bool


#: The explainers, by `explainer_type`.
EXPLAINER_KINDS = {
    "anchor_image": ExplainerKind("AnchorImage", is_remote=True),
    "anchor_tabular": ExplainerKind("AnchorTabular", is_remote=True),
    "anchor_text": ExplainerKind("AnchorText", is_remote=True),
    "kernel_shap": ExplainerKind("KernelShap", is_remote=True),
    "integrated_gradients": ExplainerKind("IntegratedGradients", is_remote=False),
    "tree_shap": ExplainerKind("TreeShap", is_remote=False),
    "tree_partial_dependence": ExplainerKind("TreePartialDependence", is_remote=False),
    "tree_partial_dependence_variance": ExplainerKind("PartialDependenceVariance", is_remote=False),
}


class AlibiExplainSettings(BaseSettings):
    """The settings of an explainer."""

    _extra = "ignore"
    _env_prefix = ENV_PREFIX_ALIBI_EXPLAIN_SETTINGS

    #: The URL of the explained model (`…/v2/models/NAME/infer`), or the path of its file.
    infer_uri: str
    #: One of `EXPLAINER_KINDS`.
    explainer_type: str
    #: Whether to explain all elements of a request together. By default, only the first one is explained.
    explainer_batch: bool = False
    #: The output of the explained model to use. Defaults to the first one.
    infer_output: Optional[str] = None
    #: The arguments to create an explainer with. By default, it is loaded from the model's `uri`.
    init_parameters: Optional[Dict[str, Any]] = None
    #: A file or folder with certificates to trust for calls over HTTPS.
    ssl_verify_path: Optional[str] = None


def get_explain_settings(model_settings: ModelSettings) -> AlibiExplainSettings:
    """Returns the settings of a model's explainer.

    Raises `MLServerError` if one of them is missing or invalid.
    """
    extra = model_settings.parameters.extra if model_settings.parameters is not None else None
    found = runtime_settings(AlibiExplainSettings, extra or {})
    if found.explainer_type not in EXPLAINER_KINDS:
        expected = ", ".join(EXPLAINER_KINDS)
        raise MLServerError(
            f"`parameters.extra.explainer_type` is `{found.explainer_type}`, expected one of {expected}", 500
        )
    return found
