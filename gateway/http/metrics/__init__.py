"""What /metrics shows, and where it is counted."""
