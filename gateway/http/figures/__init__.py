"""What a broker measures of itself at regular times, and what the brokers of a cluster make of it together.

`history` keeps figures over time in bounded memory, `lag` adds up what groups have not read, `values` has the figures
themselves, `sampler` measures them, `merged` puts those of all brokers together for lists.
"""
