"""What a worker is shut in with: users, bubblewrap, and what this host allows of it."""
