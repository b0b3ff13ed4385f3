"""The demo: a year of real flights through the daemon into Spark and back, checked to the last figure.

``python -m examples.flights`` runs it (``make demo`` sets up and does so).  ``flights`` and ``expected``
are plain Python over the CSV file and know neither daemon nor Spark; ``replay`` brings the flights to the
daemon, ``queries`` reads them from there with Spark, ``check`` holds Spark's figures against the expected.
"""
