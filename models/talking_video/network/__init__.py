"""The network: its blocks, its weights, its adapters, and the decoding of latents to frames."""
