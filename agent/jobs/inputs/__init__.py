"""Gives handlers what they read: URLs, which are fetched and cached, and chunks that their saves cover."""
