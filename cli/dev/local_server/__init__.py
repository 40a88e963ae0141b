"""The local server of `stoker dev`: its routes, its documentation, and the calls that it passes on."""
