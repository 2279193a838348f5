"""One partition's log on local disk, and all logs of a data directory."""
