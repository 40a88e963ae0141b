"""Logs of workers: the pipe they print to, its last lines, and the secrets that are removed from them."""
