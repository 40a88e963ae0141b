"""Commands for keys, endpoints and other resources, bills and weights."""
