"""Independent oracles and checks, for our tests and for users' own."""
