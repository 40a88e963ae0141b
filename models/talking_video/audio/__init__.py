"""Opens and checks the caller's audio, and turns it into the network's audio tokens."""
