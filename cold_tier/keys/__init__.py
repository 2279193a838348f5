"""Master keys of encrypted archives: named by a topic, held in a key file or by AWS KMS."""
