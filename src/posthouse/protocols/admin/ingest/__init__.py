"""What clients may send as records: JSON, lines of JSON, plain bytes, CloudEvents."""
