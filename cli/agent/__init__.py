"""`stoker agent`: the agent process and the settings of its host."""
