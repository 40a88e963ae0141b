"""The host's devices: which there are, whether they are healthy, and whether work may use them."""
