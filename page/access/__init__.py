"""Who may look: the guard of each request, sessions, signing in, and each session's connection to control."""
