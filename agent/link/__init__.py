"""The session with control: its stream, the lease that it gives, and one connection life."""
