"""What goes out with a job: its output as JSON and its files, and what a file is by its first bytes."""
