"""Archives sealed segments to the cold tier in the one safe order; applies retention and collects garbage."""
