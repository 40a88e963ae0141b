"""Pods as a resource: what callers ask for, what they are shown, and the changes between."""
