"""The metrics of control, which Prometheus scrapes: counts of what happened, and measures of what is now."""
