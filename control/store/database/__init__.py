"""The database itself: how it is opened, its tables, its transactions and its failures."""
