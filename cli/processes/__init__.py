"""Processes of the command line: their imports, their parents, what they announce, and how they stop."""
