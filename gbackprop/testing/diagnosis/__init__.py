"""Diagnosis of failed claims: the smallest edits of a stated grammar that make them hold, verified on fresh samples."""
