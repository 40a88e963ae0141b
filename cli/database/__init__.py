"""`stoker database`, `stoker backup` and `stoker restore`: what an operator does with the database itself."""
