"""The training of the small models that the package ships. Only tests and benchmarks import this folder; the
wheel leaves it out."""
