"""Layers that move numbers."""
