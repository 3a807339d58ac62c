"""A module that needs another one, which does not exist."""

import not_installed_anywhere.inside  # type: ignore[import-not-found]  # noqa: F401
