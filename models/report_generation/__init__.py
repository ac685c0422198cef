"""A report generator that `fit` trains: an image encoder, a decoder, and the words they write in."""
