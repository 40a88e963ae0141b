"""The host: its devices, folders and processes, and what it confines workers with."""
