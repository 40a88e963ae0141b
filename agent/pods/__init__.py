"""Pods: containers that users order themselves, and that the agent creates, supervises and removes."""
