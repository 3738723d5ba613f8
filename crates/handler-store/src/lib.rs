//! SQLite, migrations, event-log files, sealed secret values, folder layout.
