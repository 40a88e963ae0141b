"""The nodes: which may join, which of their messages are accepted, and one session of each."""
