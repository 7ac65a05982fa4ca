"""A real Apache Kafka on this machine, without Docker: brokers on loopback, from Maven's artefacts.

For ``susurrus kafka``, the tests and the benchmarks. It needs a JDK (17 or later) and, the first time, Maven. No client of a
pipeline imports it: in production Kafka runs elsewhere.
"""
