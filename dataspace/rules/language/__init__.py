"""The language of rules: rules as data, from text and from Python, and the checks that make them safe."""
