"""The hosted models: what they declare, their weights and their handlers. No import here loads torch."""
