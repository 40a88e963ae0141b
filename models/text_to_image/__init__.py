"""Images from a prompt, with one of diffusers' pipelines or a small one with made-up weights."""
