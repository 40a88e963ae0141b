"""The pure rules: what may happen to jobs and pods, what fits where, and what callers may send."""
