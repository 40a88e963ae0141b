"""Names a handler that is a number."""

handler = 7
