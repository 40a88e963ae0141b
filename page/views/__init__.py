"""The pages, one module each, in a common frame."""
