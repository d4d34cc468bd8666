"""NumPy functions recorded on arrays that write down what is done to them, and read as networks and losses."""
