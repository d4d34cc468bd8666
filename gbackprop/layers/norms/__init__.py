"""Layers that normalize, or scale each feature."""
