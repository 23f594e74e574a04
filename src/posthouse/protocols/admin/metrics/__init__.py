"""Metrics: the state of the broker as Prometheus and OpenTelemetry want it.

family         one metric: its name, kind, labels and meaning
samples        the values of one collection, by family
requests, topics, queues, groups, storage, connections, process
               what each declares, and how it is collected; they read plain ints that hot paths increment
table          labels and values of the objects that are shown by name
selection      which objects are shown by name; the others are summed
collector      all of these in turn, in slices that leave the event loop to others
text           samples in Prometheus' text format
otlp_metrics   the same samples, pushed by OpenTelemetry's SDK
"""
