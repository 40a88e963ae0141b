"""The node agent: one per host. It keeps a session with control and runs the host's workers and pods."""
