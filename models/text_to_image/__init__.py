"""Makes an image from a prompt: FLUX, and a small pipeline with made-up weights."""
