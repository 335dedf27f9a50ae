"""Tables of logged data: CSV, Parquet and DataFrames, read by a column map."""
