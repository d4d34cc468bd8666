"""Layers that slide windows over images: convolutions, pooling, padding, upsampling."""
