"""Reports that control has not acknowledged yet: the outbox, its file, and the shell that fills it."""
