"""Reads the settings of a folder."""

import os
import sys
from typing import List, Optional, Tuple

from ..repository.factory import ModelRepositoryFactory
from ..settings import ModelSettings, Settings

__all__ = ["DEFAULT_SETTINGS_FILENAME", "load_settings"]

DEFAULT_SETTINGS_FILENAME = "settings.json"


async def load_settings(folder: Optional[str] = None) -> Tuple[Settings, List[ModelSettings]]:
    """Returns the settings of the server and of the models in a folder, and adds the folder to the import path."""
    for entry in (".", folder):
        if entry is not None:
            sys.path.insert(0, entry)
    path = os.path.join(folder or "", DEFAULT_SETTINGS_FILENAME)
    settings = Settings.parse_file(path) if folder is not None and os.path.isfile(path) else Settings()
    if folder is not None:
        settings.model_repository_root = folder
    if not settings.load_models_at_startup:
        return settings, []
    return settings, await ModelRepositoryFactory.resolve_model_repository(settings).list()
