"""Small data sets that come with the library and need no download."""
