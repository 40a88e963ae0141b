"""Callers and how often they may call, references to secrets, and the certificate that both ports show."""
