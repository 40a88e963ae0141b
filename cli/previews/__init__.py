"""Previews of images in a terminal: which way of drawing it has, and the pictures in each of them."""
