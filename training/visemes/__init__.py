"""The training of the network that hears visemes, on speech that espeak-ng makes."""
