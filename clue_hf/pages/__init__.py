"""What all web pages share: frame, palette, tables, templates."""
