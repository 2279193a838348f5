"""The command line, the settings, and the place where the parts are put together."""
