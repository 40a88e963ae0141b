"""The sandbox of a worker: users, bubblewrap, and what this host allows of it."""
