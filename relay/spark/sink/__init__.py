"""The sink: rows of a DataFrame as facts and messages of a dataspace."""
