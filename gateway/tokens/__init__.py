"""Logins with tokens (JWT) of an identity provider.

settings    which provider, and what a token must say
key_set     the provider's public keys, as bytes and as values
check       whether a token is right; pure
key_source  where the keys are read from: a file, an address, or the address of a provider's description
tokens      the keys in use: read again in time, and kept for a while if that fails
"""
