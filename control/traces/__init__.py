"""Traces of requests and jobs: which spans there are, and their export where the operator asks for it."""
