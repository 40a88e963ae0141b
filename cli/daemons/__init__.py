"""Control and the agent as processes: their options, and their start without the command line"""
