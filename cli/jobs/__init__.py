"""`stoker job`, `stoker image` and `stoker talk`: submit a job, watch it, and print or save its result."""
