"""The `stoker` command and the modules that its commands share. No other folder imports it."""
