"""`stoker doctor`: this host and the service, checked before and after a start."""
