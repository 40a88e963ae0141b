"""The caller's audio: opened, checked, and turned into the network's audio tokens."""
