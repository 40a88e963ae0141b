"""The output of a job as JSON and its files, and the media type of a file by its first bytes."""
