"""Reads the settings file of a model."""

import os

from ..logging import logger
from ..settings import ModelParameters, ModelSettings

__all__ = ["load_model_settings"]


def load_model_settings(model_settings_path: str) -> ModelSettings:
    """Reads a `model-settings.json`. Name and URI default to those of its folder."""
    settings = ModelSettings.parse_file(model_settings_path)
    folder = os.path.dirname(model_settings_path)
    folder_name = os.path.basename(os.path.abspath(folder))
    if not settings.name:
        settings.name = folder_name
    elif folder_name not in (settings.name, settings.version):
        logger.warning("Model name '%s' is different than model's folder name '%s'.", settings.name, folder_name)
    if settings.parameters is None:
        settings.parameters = ModelParameters()
    if not settings.parameters.uri:
        settings.parameters.uri = folder
    return settings
