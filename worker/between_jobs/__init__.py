"""Traces that one job may leave in its process, put back or reported before the next one."""
