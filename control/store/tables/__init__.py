"""The tables of the database, defined once for SQLite and PostgreSQL alike. No queries."""
