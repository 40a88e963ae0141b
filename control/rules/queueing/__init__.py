"""The queue of an endpoint: the classes of its jobs, and the order in which they are claimed."""
