"""The workers that control desires: when each starts, ends, and is replaced. How a process is started stands
elsewhere.
"""
