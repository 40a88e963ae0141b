"""The endpoints that the configuration file and the options declare, beside those that callers make."""
