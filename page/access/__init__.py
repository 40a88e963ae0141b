"""The right to look: the guard of requests, sessions, signing in, and sessions' connections to control."""
