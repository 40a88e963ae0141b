"""The rules for nodes: which of their messages are accepted, and how control reaches them."""
