"""The rotation of a key under load, killed again and again."""
