"""Processes that run handlers, of five kinds, and the life that they share."""
