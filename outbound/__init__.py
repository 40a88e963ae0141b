"""Every connection to an address that a user or an operator named: guarded, bounded, and shared fairly."""
