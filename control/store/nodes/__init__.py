"""Nodes in the store: their sessions, their records, and the workers that they were given."""
