"""A single attempt at one job: the job that its handler sees, its frames to the agent, and its URL inputs."""
