"""lookback: a small laboratory for attention."""
