"""Diagnosis of failed claims: the smallest edits of a stated grammar with which they hold, verified on fresh samples."""
