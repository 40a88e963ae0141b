"""The zygote: imports a worker's libraries once, and forks workers."""
