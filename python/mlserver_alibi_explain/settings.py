"""The settings of explainers, and the kinds of explainers that there are."""

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
    #: Whether it asks a model that is served elsewhere; otherwise it reads the model's file.
    asks: bool


#: The explainers, by `explainer_type`.
EXPLAINER_KINDS = {
    "anchor_image": ExplainerKind("AnchorImage", asks=True),
    "anchor_tabular": ExplainerKind("AnchorTabular", asks=True),
    "anchor_text": ExplainerKind("AnchorText", asks=True),
    "kernel_shap": ExplainerKind("KernelShap", asks=True),
    "integrated_gradients": ExplainerKind("IntegratedGradients", asks=False),
    "tree_shap": ExplainerKind("TreeShap", asks=False),
    "tree_partial_dependence": ExplainerKind("TreePartialDependence", asks=False),
    "tree_partial_dependence_variance": ExplainerKind("PartialDependenceVariance", asks=False),
}


class AlibiExplainSettings(BaseSettings):
    """What an explainer is made of."""

    _extra = "ignore"
    _env_prefix = ENV_PREFIX_ALIBI_EXPLAIN_SETTINGS

    #: Where the explained model answers (`…/v2/models/NAME/infer`), or the file that it is.
    infer_uri: str
    #: One of the kinds.
    explainer_type: str
    #: Explains all elements of a request together; otherwise its first one alone.
    explainer_batch: bool = False
    #: The output of the explained model that counts, if it is not the first one.
    infer_output: Optional[str] = None
    #: Makes an explainer of these arguments; otherwise it is read from the model's `uri`.
    init_parameters: Optional[Dict[str, Any]] = None
    #: A file, or a folder, of certificates to trust when the explained model is asked over HTTPS.
    ssl_verify_path: Optional[str] = None


def get_explain_settings(model_settings: ModelSettings) -> AlibiExplainSettings:
    """Returns the settings of a model's explainer.

    Raises `MLServerError` when one of them is missing or wrong.
    """
    extra = model_settings.parameters.extra if model_settings.parameters is not None else None
    found = runtime_settings(AlibiExplainSettings, extra or {})
    if found.explainer_type not in EXPLAINER_KINDS:
        expected = ", ".join(EXPLAINER_KINDS)
        raise MLServerError(
            f"`parameters.extra.explainer_type` is `{found.explainer_type}`, expected one of {expected}", 500
        )
    return found
