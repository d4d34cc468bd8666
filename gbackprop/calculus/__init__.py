"""The calculus: layers as functions with derivatives, Jacobians in parameters, reductions, signals."""
