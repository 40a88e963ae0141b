"""Preparation of a handler before the first job: it is loaded, checked, and set up."""
