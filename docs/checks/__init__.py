"""What is checked of the site: transcripts are what commands print, and the build finds mistakes."""
