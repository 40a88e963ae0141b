"""`flux-mini`: what it can draw, how it reads a prompt, and its trained weights."""
