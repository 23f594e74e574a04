"""What happens when there is much of something: connections, topics, records, or demand."""
