"""Fetches the URLs that jobs have as inputs, and caches what is found there."""
