"""Which workers there are, on which devices, and which job each gets."""
