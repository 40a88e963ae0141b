"""Who calls and how often they may, references to secrets, and the certificate that both ports show."""
