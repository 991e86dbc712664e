"""The audit: attacks on recorded views, beside the undefended, the null and the oracle row."""
