"""The database: connection, migrations, and one module of queries per table group."""
