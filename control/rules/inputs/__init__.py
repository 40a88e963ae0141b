"""The inputs of jobs: the schema of an endpoint, narrowed by its file; the check against it; its defaults."""
