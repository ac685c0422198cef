"""Questions about images: where their records stand, what is made of them, and where the pictures lie."""
