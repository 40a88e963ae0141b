"""What workers print: the pipe, the last lines, and what must not be shown of it."""
