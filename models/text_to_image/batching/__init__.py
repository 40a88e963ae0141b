"""Batches of several jobs' images: which fit together, and where a measurement says that batches pay."""
