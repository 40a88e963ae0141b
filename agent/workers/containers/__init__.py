"""Workers in containers of this host's engine, and the engine itself."""
