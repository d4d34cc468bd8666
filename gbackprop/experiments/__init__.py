"""Data sets, problems and the demonstration: what surrounds the engine; needs the extra ``experiments``."""
