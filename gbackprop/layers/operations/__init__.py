"""Operations: a table of functions with their derivatives, the layers that apply them, and leaves of a graph."""
