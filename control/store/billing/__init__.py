"""Time and money in the store: spans of use, bills, and counts of jobs."""
