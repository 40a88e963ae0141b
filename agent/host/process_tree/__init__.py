"""All that a worker's process started: which processes, their memory, and their end."""
