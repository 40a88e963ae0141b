"""The page: Stoker in a browser, a process of its own beside any control.

    browser ── cookie ──> page (guard, sessions, one module for each page) ── the caller's key ──> control

It speaks to control through `stoker.client` alone, with the key of whoever signed in, so a browser can do
nothing that this key may not. Nothing is stored: sessions are lost when the process ends.
"""
