"""The serving of a handler: the worker's end of its socket, and the three loops that run attempts."""
