"""Load-balancing endpoints: takes callers' requests straight to the HTTP servers of workers"""
