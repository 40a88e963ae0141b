"""Makes images of several jobs in one batch: which fit together, and where a measurement says it pays."""
