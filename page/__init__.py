"""The page: Stoker in a browser, a process of its own beside any control.

    browser ── cookie ──> access ──> views, with their content ── the key of who signed in ──> control

It speaks to control through `stoker.client` alone, with the key of whoever signed in, so a browser can do
nothing that this key may not. Nothing is stored: sessions are lost when the process ends.
"""
