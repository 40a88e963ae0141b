"""The configuration: the sections of `stoker.toml`, their checks, and the settings of control."""
