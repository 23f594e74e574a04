"""Messages that Kafka does not have, written by hand in the form of the generated ones."""
