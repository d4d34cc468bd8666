"""Certificates: stated formulas, what follows from them, and code, compared on whole intervals of floats."""
