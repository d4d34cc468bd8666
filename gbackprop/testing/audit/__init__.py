"""The audit: the checks of `gbackprop.testing` on everything that ships, or on what a user names."""
