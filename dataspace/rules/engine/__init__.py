"""The engine of rules: from rules to derived facts that are kept up to date, and why each holds."""
