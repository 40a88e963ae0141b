"""The HTTP server of control: its connections, offers of other protocols, and the proxies before it."""
