"""Models that learn: by epochs, at once on features that are kept, and on made data to see what they are worth."""
