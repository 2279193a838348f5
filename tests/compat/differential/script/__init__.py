"""What is asked, area by area. Each module has one `run(session)` and names its topics and groups by version."""
