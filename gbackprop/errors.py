"""The two errors that Python has no name for; everything else is a ValueError, TypeError or RuntimeError."""


class UnsupportedError(NotImplementedError, ValueError):
    """A layer cannot give what a quantity needs; the message names both."""


class TooLargeError(MemoryError, ValueError):
    """A matrix that was asked for would not fit into memory; the message says how large it would be."""
