"""`make demo`: a broker, orders from a Kafka client, and a pipeline on Spark, for half a minute."""
