"""Sampling of latents from noise: the plan of chunks, the noise levels and guidance, and the denoising
loop."""
