"""One module per API: its request, its response and the structs inside, all versions in one class."""
