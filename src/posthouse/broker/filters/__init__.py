"""Which messages a subscription takes: by tag, or by a condition on properties. It knows no protocol."""
