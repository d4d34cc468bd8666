"""The audit: everything that ships, or what a user names, held against the checks of `gbackprop.testing`."""
