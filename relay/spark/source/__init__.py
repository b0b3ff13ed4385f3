"""The source: epochs of a dataspace as rows of a DataFrame."""
