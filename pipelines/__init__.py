"""Headrace: raw material in, versioned training and evaluation data out."""

__version__ = "0.1.0"
