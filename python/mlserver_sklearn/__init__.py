"""Serves scikit-learn's models in Python."""

from .sklearn import SKLearnModel

__all__ = ["SKLearnModel"]
