"""Layers that compute each number, or each vector, from itself: activations and dropout."""
