"""The caller's image and the output video: sizes, colours, H.264."""
