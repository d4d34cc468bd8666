"""The subcommands of the experiments, one file each: arguments, what may be wrong with them, and the call."""
