"""Vision-language models of the Hugging Face hub: how they are loaded, asked, decoded, and weighed over options."""
