"""Labels that a language model reads in reports, and the tables that are made of them."""
