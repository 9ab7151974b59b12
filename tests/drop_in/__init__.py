"""Cases that run transformers' trainer and ours side by side; docs/drop_in.md is made of them."""
